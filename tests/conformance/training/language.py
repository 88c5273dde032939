"""Language: nanoGPT's loop, an LSTM, classification with BERT, LoRA, translation of sounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional as F

Wrap = Callable[[nn.Module], nn.Module]
_WORDS = 211


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.size()
        q, k, v = self.attention(self.first(x)).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.mlp(self.second(x))


class _Gpt(nn.Module):
    """Returns logits and loss, as nanoGPT's model does. Its head and its embedding are one parameter."""

    def __init__(self, layers: int, width: int, longest: int) -> None:
        super().__init__()
        self.longest = longest
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(_WORDS, width), "wpe": nn.Embedding(longest, width), "drop": nn.Dropout(0.1),
            "h": nn.ModuleList(_Block(width, 4) for _ in range(layers)), "ln_f": nn.LayerNorm(width),
        })  # fmt: skip
        self.lm_head = nn.Linear(width, _WORDS, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for name, parameter in self.named_parameters():
            if name.endswith("out.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers))

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        length = tokens.size(1)
        assert length <= self.longest, f"a sequence of {length}, the longest is {self.longest}"
        places = torch.arange(0, length, dtype=torch.long, device=tokens.device)
        x = self.transformer.drop(self.transformer.wte(tokens) + self.transformer.wpe(places))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, tokens: torch.Tensor, count: int) -> torch.Tensor:
        """Appends `count` tokens, each drawn from what the model predicts."""
        for _ in range(count):
            logits, _ = self(tokens if tokens.size(1) <= self.longest else tokens[:, -self.longest :])
            chosen = torch.multinomial(F.softmax(logits[:, -1, :], dim=-1), 1)
            tokens = torch.cat((tokens, chosen), dim=1)
        return tokens


def nano_gpt(wrap: Wrap) -> Iterator[float]:
    """nanoGPT: micro steps, clipping, a rate that warms up and decays, evaluation and samples now and then."""
    model = _Gpt(3, 64, 32)
    decayed, others = ([p for p in model.parameters() if (p.dim() >= 2) is big] for big in (True, False))
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    model = wrap(model)
    data = torch.randint(_WORDS, (4000,))

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(data) - 33, (8,))
        return torch.stack([data[i : i + 32] for i in starts]), torch.stack([data[i + 1 : i + 33] for i in starts])

    for step in itertools.count():
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 10)
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                model(*batch())
            model.generate(data[None, :4], 3)
            model.train()
        for _ in range(2):
            _, loss = model(*batch())
            (loss / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()


class _LstmModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(_WORDS, 48)
        self.rnn, self.decoder = nn.LSTM(48, 48, 2, dropout=0.2), nn.Linear(48, _WORDS)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, words: torch.Tensor, hidden: tuple[torch.Tensor, torch.Tensor]):
        output, hidden = self.rnn(self.drop(self.encoder(words)), hidden)
        return F.log_softmax(self.decoder(self.drop(output)).view(-1, _WORDS), dim=1), hidden

    def init_hidden(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns states of zeros: [layers, batch, width] each."""
        weight = next(self.parameters())
        return weight.new_zeros(2, batch, 48), weight.new_zeros(2, batch, 48)


def word_language_model(wrap: Wrap) -> Iterator[float]:
    """PyTorch's word_language_model: hidden states carried from batch to batch, rows of one batch that is shorter."""
    model = wrap(_LstmModel())
    data = torch.randint(_WORDS, (20 * 12 + 8, 10))
    hidden = model.init_hidden(10)
    while True:
        for i in range(0, data.size(0) - 1, 12):
            words, targets = data[i : i + 12], data[i + 1 : i + 13].view(-1)
            words = words[: data.size(0) - 1 - i]
            model.zero_grad()
            hidden = tuple(state.detach() for state in hidden)
            output, hidden = model(words, hidden)
            loss = F.nll_loss(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-1.0)
            yield loss.item()


def _bert(**settings: object) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=_WORDS, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=64, num_labels=3, **settings,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def _classify(model: nn.Module, lengths: list[int]) -> Iterator[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
    for length in itertools.cycle(lengths):
        tokens, labels = torch.randint(5, _WORDS, (8, length)), torch.randint(3, (8,))
        mask = (torch.arange(length) < torch.randint(3, length + 1, (8, 1))).long()
        result = model(input_ids=tokens, attention_mask=mask, labels=labels)
        result.loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        yield result.loss.item()


def bert_labels(wrap: Wrap) -> Iterator[float]:
    """transformers' classification: no `problem_type`, which the first forward works out from the labels."""
    return _classify(wrap(_bert()), [24])


def bert_problem_type(wrap: Wrap) -> Iterator[float]:
    """The same with `problem_type`, padded to the longest of each batch: a length a batch."""
    return _classify(wrap(_bert(problem_type="single_label_classification")), [24, 17, 30, 12, 21, 9, 28])


def bert_hidden_states(wrap: Wrap) -> Iterator[float]:
    """The same with hidden states and attentions among the results, which transformers captures by forward hooks."""
    return _classify(wrap(_bert(output_hidden_states=True, output_attentions=True, attn_implementation="eager")), [24])


def lora(wrap: Wrap) -> Iterator[float]:
    """peft: low-rank updates of a frozen Llama's projections."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=_WORDS, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=64,
    )  # fmt: skip
    tuned = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1))
    model = wrap(tuned)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    while True:
        tokens = torch.randint(_WORDS, (4, 24))
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


def whisper(wrap: Wrap) -> Iterator[float]:
    """transformers' speech recognition: labels of several lengths, dropped layers."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=_WORDS, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, num_mel_bins=16, max_source_positions=40,
        max_target_positions=40, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=[], begin_suppress_tokens=[], apply_spec_augment=False,
    )  # fmt: skip
    model = wrap(WhisperForConditionalGeneration(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for length in itertools.cycle([14, 9, 18]):
        sounds, labels = torch.randn(4, 16, 80), torch.randint(3, _WORDS, (4, length))
        loss = model(input_features=sounds, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()
