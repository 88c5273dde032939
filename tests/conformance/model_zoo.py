"""Small configurations of known architectures with random weights: what `scripts/conformance models` tries.

`MODELS` has them all; a model of a package that is not installed is reported as absent.
"""

from __future__ import annotations

# ruff: noqa: E501  (a table)
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from model_zoo_torch import TORCH_MODELS
from torch import nn

Inputs = dict[str, Any]
Sizes = tuple[int, ...]
_VOCABULARY = 64
_TEXT: list[Sizes] = [(2, 10), (3, 7), (4, 16)]  # batch, length
_PAIRS: list[Sizes] = [(2, 10, 6), (3, 7, 9), (4, 16, 5)]  # batch, length of the source, of the target
_IMAGES: list[Sizes] = [(2, 64), (3, 96), (4, 128)]  # batch, height and width
_BATCHES: list[Sizes] = [(2,), (3,), (5,)]  # of models whose images, say, have one size


@dataclass(frozen=True)
class Model:
    """make: the module, with this probability of dropout. inputs: keyword arguments of a call of these sizes."""

    name: str
    package: str
    make: Callable[[float], nn.Module]
    inputs: Callable[..., Inputs]
    sizes: list[Sizes]


def _tokens(*sizes: int) -> torch.Tensor:
    return torch.randint(3, _VOCABULARY, sizes)


def _text(batch: int, length: int) -> Inputs:
    tokens = _tokens(batch, length)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens.clone()}


def _padded(batch: int, length: int) -> Inputs:
    """The first row is padded at its end."""
    tokens = _tokens(batch, length)
    mask = torch.ones_like(tokens)
    mask[0, length // 2 :] = 0
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}


def _pair(batch: int, source: int, target: int) -> Inputs:
    return {"input_ids": _tokens(batch, source), "labels": _tokens(batch, target)}


def _image(batch: int, size: int = 64) -> Inputs:
    return {"pixel_values": torch.randn(batch, 3, size, size), "labels": torch.randint(0, 4, (batch,))}


def _segmented(batch: int, size: int) -> Inputs:
    return {
        "pixel_values": torch.randn(batch, 3, size, size),
        "labels": torch.randint(0, 4, (batch, size, size)),
    }


def _captioned(batch: int, length: int) -> Inputs:
    images = torch.randn(batch, 3, 32, 32)
    return {"input_ids": _tokens(batch, length), "pixel_values": images, "return_loss": True}


def _speech(batch: int, samples: int) -> Inputs:
    return {"input_values": torch.randn(batch, samples), "labels": torch.randint(3, 20, (batch, 4))}


def _padded_speech(batch: int, samples: int) -> Inputs:
    kept = torch.ones(batch, samples, dtype=torch.long)
    kept[1:, samples * 3 // 4 :] = 0
    return {**_speech(batch, samples), "attention_mask": kept}


def _spectrogram(batch: int, length: int) -> Inputs:
    return {"input_features": torch.randn(batch, 8, 40), "labels": _tokens(batch, length)}


def _drop(config: Any, probability: float) -> None:
    """Set all of a configuration's probabilities of dropout: to 0, or those that are 0 otherwise."""
    for name, value in vars(config).items():
        if hasattr(value, "to_dict"):
            _drop(value, probability)
        elif "drop" in name and isinstance(value, (int, float)) and not isinstance(value, bool):
            is_of_layers = "layerdrop" in name or "layer_drop" in name
            setattr(config, name, value if probability and (value or is_of_layers) else probability)


def _transformer(name: str, config: str, model: str, inputs: Callable[..., Inputs], sizes: list[Sizes], **given: Any) -> Model:
    def make(dropout: float) -> nn.Module:
        import transformers

        made = getattr(transformers, config)(**given)
        _drop(made, dropout)
        return getattr(transformers, model)(made)

    return Model(name, "transformers", make, inputs, sizes)


def _vision(package: str, name: str, made: Callable[[Any], nn.Module], sizes: list[Sizes], argument: str = "x") -> Model:
    """made: the module, from the package."""

    def inputs(batch: int, size: int = 64) -> Inputs:
        return {argument: torch.randn(batch, 3, size, size)}

    def make(dropout: float) -> nn.Module:
        module = made(importlib.import_module(package))
        for part in module.modules():
            if isinstance(part, nn.modules.dropout._DropoutNd) or type(part).__name__ == "StochasticDepth":
                part.p = dropout
        return module

    return Model(name, package, make, inputs, sizes)


def _lraspp(models: Any) -> nn.Module:
    return models.get_model("lraspp_mobilenet_v3_large", weights=None, weights_backbone=None, num_classes=4)


def _causal(name: str, family: str, inputs: Callable[..., Inputs] = _text, model: str = "", **given: Any) -> Model:
    sizes: dict[str, Any] = {
        **_SMALL,
        "vocab_size": _VOCABULARY,
        "pad_token_id": 0,
        "use_cache": False,
        **given,
    }
    return _transformer(name, f"{family}Config", model or f"{family}ForCausalLM", inputs, _TEXT, **sizes)


def _masked(name: str, family: str, **given: Any) -> Model:
    sizes: dict[str, Any] = {**_SMALL, "vocab_size": _VOCABULARY, "pad_token_id": 0, **given}
    return _transformer(name, f"{family}Config", f"{family}ForMaskedLM", _padded, _TEXT, **sizes)


def _classifier(name: str, family: str, sizes: list[Sizes], **given: Any) -> Model:
    labels: dict[str, Any] = {"num_labels": 4, "problem_type": "single_label_classification"}
    return _transformer(name, f"{family}Config", f"{family}ForImageClassification", _image, sizes, **labels, **given)


def _two_stacks(name: str, family: str, **given: Any) -> Model:
    sizes: dict[str, Any] = {
        **_TWO_STACKS,
        "vocab_size": _VOCABULARY,
        "pad_token_id": 0,
        "decoder_start_token_id": 1,
        **given,
    }
    return _transformer(name, f"{family}Config", f"{family}ForConditionalGeneration", _pair, _PAIRS, **sizes, use_cache=False)


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_TWO_STACKS = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip
_T5 = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 2}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_key_value_heads": 1}
_SPEECH = {
    **_SMALL, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2, "vocab_size": 20, "pad_token_id": 0,
}  # fmt: skip
_UNMASKED = {"apply_spec_augment": False, "layerdrop": 0.0}

_NAMED = [
    _transformer("gpt2", "GPT2Config", "GPT2LMHeadModel", _text, _TEXT, **_GPT, vocab_size=_VOCABULARY, use_cache=False),
    _masked("bert", "Bert"),
    _masked("roberta", "Roberta", max_position_embeddings=40),
    _two_stacks("t5", "T5", **_T5),
    _causal("llama", "Llama", _padded, use_cache=True),
    _causal("mistral", "Mistral", num_key_value_heads=1, sliding_window=6),
    _causal("mixtral", "Mixtral", num_key_value_heads=1, num_local_experts=4),
    _causal("qwen2_moe", "Qwen2Moe", **_EXPERTS, shared_expert_intermediate_size=32, decoder_sparse_step=1),
    _classifier("vit", "ViT", _BATCHES, **_SMALL, image_size=64),
    _vision("torchvision.models", "resnet50", lambda models: models.resnet50(num_classes=4, width_per_group=8), _IMAGES),
    _classifier("convnext", "ConvNext", _IMAGES, hidden_sizes=[8, 16], depths=[2, 2], num_stages=2),
    _classifier("efficientnet", "EfficientNet", _IMAGES, width_coefficient=0.25, hidden_dim=320),
    *(Model(name, "torch", make, inputs, sizes) for name, (make, inputs, sizes) in TORCH_MODELS.items()),
    _transformer("wav2vec2", "Wav2Vec2Config", "Wav2Vec2ForCTC", _speech, [(2, 400), (3, 520), (4, 640)], **_SPEECH),
    _transformer(
        "clip", "CLIPConfig", "CLIPModel", _captioned, _TEXT, projection_dim=16,
        text_config={**_SMALL, "vocab_size": _VOCABULARY, "eos_token_id": 5}, vision_config={**_SMALL, "image_size": 32, "patch_size": 8},
    ),
    _transformer(
        "whisper", "WhisperConfig", "WhisperForConditionalGeneration", _spectrogram, _TEXT, **_TWO_STACKS, vocab_size=_VOCABULARY,
        num_mel_bins=8, max_source_positions=20, max_target_positions=32, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, use_cache=False,
    ),
]  # fmt: skip

_FURTHER = [
    _transformer(
        "distilbert", "DistilBertConfig", "DistilBertForMaskedLM", _padded, _TEXT, dim=32, n_layers=2, n_heads=2, hidden_dim=64,
        vocab_size=_VOCABULARY,
    ),
    _masked("albert", "Albert", embedding_size=16),
    _masked("deberta", "DebertaV2", relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"]),
    _masked("electra", "Electra", embedding_size=16),
    _masked("mpnet", "MPNet"),
    _masked("modernbert", "ModernBert", cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2, local_attention=6),
    _transformer("xlnet", "XLNetConfig", "XLNetLMHeadModel", _text, _TEXT, d_model=32, n_layer=2, n_head=2, d_inner=64, vocab_size=_VOCABULARY),
    _causal("qwen2", "Qwen2", num_key_value_heads=1),
    _causal("qwen3", "Qwen3", num_key_value_heads=1, head_dim=16),
    _causal("qwen3_moe", "Qwen3Moe", **_EXPERTS, head_dim=16),
    _causal("gemma2", "Gemma2", num_key_value_heads=1, head_dim=16),
    _causal("gemma3", "Gemma3Text", num_key_value_heads=1, head_dim=16, sliding_window=6, model="Gemma3ForCausalLM"),
    _causal("phi", "Phi"),
    _causal("phi3", "Phi3"),
    _causal("gpt_neox", "GPTNeoX"),
    _causal("olmo2", "Olmo2"),
    _causal("opt", "OPT", ffn_dim=64, word_embed_proj_dim=32),
    _causal("bloom", "Bloom"),
    _causal("falcon", "Falcon"),
    _causal("deepseek_v3", "DeepseekV3", n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=32,
            first_k_dense_replace=1, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16),
    _causal("gpt_oss", "GptOss", num_local_experts=4, num_experts_per_tok=2, num_key_value_heads=1, head_dim=16, sliding_window=6),
    _causal("mamba", "Mamba", state_size=8),
    _causal("mamba2", "Mamba2", state_size=8, head_dim=16, num_heads=4, n_groups=1, chunk_size=4),
    _causal("rwkv", "Rwkv", attention_hidden_size=32),
    _two_stacks("bart", "Bart"),
    _two_stacks("pegasus", "Pegasus"),
    _two_stacks("mbart", "MBart"),
    _two_stacks("longt5", "LongT5", **_T5, local_radius=4),
    _classifier("deit", "DeiT", _BATCHES, **_SMALL, image_size=64),
    _classifier("swin", "Swin", _BATCHES, image_size=64, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
    _classifier("beit", "Beit", _BATCHES, **_SMALL, image_size=64),
    _classifier("dinov2", "Dinov2", _IMAGES, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, patch_size=16, image_size=64),
    _classifier("segformer", "Segformer", _IMAGES, hidden_sizes=[8, 8, 16, 16]),
    _transformer("segformer_masks", "SegformerConfig", "SegformerForSemanticSegmentation", _segmented, _IMAGES,
                 hidden_sizes=[8, 8, 16, 16], decoder_hidden_size=16, num_labels=4),
    _classifier("mobilevit", "MobileViT", _IMAGES, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 32]),
    _vision("torchvision.models", "mobilenet_v3", lambda models: models.mobilenet_v3_small(num_classes=4), _IMAGES),
    _vision("torchvision.models", "densenet", lambda models: models.DenseNet(4, (2, 2, 2), 8, num_classes=4), _IMAGES),
    _vision("torchvision.models", "regnet", lambda models: models.RegNet(models.regnet.BlockParams.from_init_params(3, 16, 10.0, 2.5, 8, se_ratio=0.25), num_classes=4), _IMAGES),
    _vision("torchvision.models", "shufflenet", lambda models: models.shufflenet_v2_x0_5(num_classes=4), _IMAGES),
    _vision("torchvision.models", "swin_resized", lambda models: models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=4), _IMAGES),
    _vision("torchvision.models", "lraspp", _lraspp, _IMAGES, "input"),
    _vision("timm.models", "timm_vit", lambda models: models.VisionTransformer(64, num_classes=4, embed_dim=32, depth=2, num_heads=2), _BATCHES),
    _vision("timm.models", "timm_efficientnet", lambda models: models.create_model("efficientnet_b0", num_classes=4), _IMAGES),
    _vision("timm.models", "timm_convnext", lambda models: models.ConvNeXt(num_classes=4, depths=(1, 1, 1, 1), dims=(8, 8, 16, 16)), _IMAGES),
    _vision("timm.models", "timm_mixer", lambda models: models.MlpMixer(4, img_size=64, num_blocks=2, embed_dim=32), _BATCHES),
    _vision("timm.models", "timm_resnetv2", lambda models: models.ResNetV2([1, 1], [128, 128], num_classes=4), _IMAGES),
    _vision("timm.models", "timm_swinv2", lambda models: models.SwinTransformerV2(64, num_classes=4, window_size=4, embed_dim=16, depths=(2, 2), num_heads=(2, 4)), _BATCHES),
    _transformer(
        "audio_spectrogram", "ASTConfig", "ASTForAudioClassification",
        lambda batch: {"input_values": torch.randn(batch, 64, 32), "labels": torch.randint(0, 4, (batch,))}, _BATCHES,
        **_SMALL, max_length=64, num_mel_bins=32, num_labels=4,
    ),
    _transformer("hubert", "HubertConfig", "HubertForCTC", _speech, [(2, 400), (3, 520), (4, 640)], **_SPEECH),
    _transformer(
        "wav2vec2_unmasked", "Wav2Vec2Config", "Wav2Vec2ForCTC", _padded_speech, [(2, 400), (3, 520), (4, 640)], **_SPEECH, **_UNMASKED
    ),
    _transformer("hubert_unmasked", "HubertConfig", "HubertForCTC", _padded_speech, [(2, 400), (3, 520), (4, 640)], **_SPEECH, **_UNMASKED),
    _transformer(
        "perceiver", "PerceiverConfig", "PerceiverForMaskedLM", lambda batch: {"inputs": _tokens(batch, 16), "labels": _tokens(batch, 16)},
        _BATCHES, d_model=32, d_latents=32, num_latents=8, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=2,
        num_cross_attention_heads=2, qk_channels=32, v_channels=32, vocab_size=_VOCABULARY, max_position_embeddings=16,
    ),
    _transformer(
        "time_series", "TimeSeriesTransformerConfig", "TimeSeriesTransformerForPrediction",
        lambda batch: {
            "past_values": torch.rand(batch, 15), "past_time_features": torch.rand(batch, 15, 1),
            "past_observed_mask": torch.ones(batch, 15), "future_values": torch.rand(batch, 4), "future_time_features": torch.rand(batch, 4, 1),
        },
        _BATCHES, **_TWO_STACKS, prediction_length=4, context_length=8, num_time_features=1,
    ),
]  # fmt: skip

MODELS: list[Model] = [*_NAMED, *_FURTHER]
