"""Padding elimination: losses, gradients and random numbers are eager's, whatever rows are left out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import padding_programs
import pytest
import rekindle
import torch
import transformers
from rekindle.compat import ORTModule
from torch import nn
from torch.nn import functional as F

WORDS = 60
PROGRAMS = 72  # `python tests/python/test_padding.py 100 400` runs those of other numbers


def wrap(model: nn.Module, **options: Any) -> rekindle.Module:
    return rekindle.Module(copy.deepcopy(model), rekindle.Options(padding_elimination=True, fallback="error", **options))


def step(model: nn.Module, arguments: tuple[Any, ...], seed: int) -> tuple[Any, dict[str, torch.Tensor | None], torch.Tensor]:
    """Returns the result, the gradients by name, and what is drawn next."""
    torch.manual_seed(seed)
    model.zero_grad()
    result = model(*arguments)
    result[0].backward()
    return result, {name: parameter.grad for name, parameter in model.named_parameters()}, torch.rand(2)


def differences(eager: tuple[Any, ...], packed: tuple[Any, ...]) -> list[str]:
    """Says where a step differs from eager's. Rows of results that are zero may, and what is not finite in eager.

    A sequence that is all padding has no attention: -inf everywhere gives rows that are no numbers, which nobody needs.
    """
    (result, gradients, drawn), (packed_result, packed_gradients, packed_drawn) = eager, packed
    found = [] if torch.equal(drawn, packed_drawn) else ["random numbers"]
    if result[0].isfinite() and not torch.allclose(result[0], packed_result[0], rtol=2e-6, atol=2e-6):
        found.append(f"loss {packed_result[0]} for {result[0]}")
    norms = [float(gradient.norm()) for gradient in gradients.values() if gradient is not None]
    size = sum(norm**2 for norm in norms if math.isfinite(norm)) ** 0.5
    for name, gradient in gradients.items():
        other = packed_gradients[name]
        if gradient is None or other is None:
            found += [name] if gradient is not other else []
        elif gradient.isfinite().all() and not (gradient - other).norm() <= 1e-5 * gradient.norm() + 1e-6 * size + 1e-9:
            found.append(name)
    for rows, packed_rows in zip(result[1:], packed_result[1:], strict=True):
        there = (packed_rows != 0).any(-1) & rows.isfinite().all(-1)
        if not torch.allclose(rows[there], packed_rows[there], rtol=1e-4, atol=1e-4):
            found.append("rows")
    return found


def check_program(seed: int) -> bool:
    """Compares a random program with eager; returns whether it left rows out."""
    eager = padding_programs.program(seed)
    packed = wrap(eager, cache="off", log="error")
    for number in range(3):
        arguments = padding_programs.batch(seed, number)
        found = differences(step(eager, arguments, number), step(packed, arguments, number))
        assert not found, f"program {seed}, batch {number}: {found} in {eager}"
    return rekindle.status(packed).packed_calls > 0


@pytest.mark.parametrize("first", range(0, PROGRAMS, PROGRAMS // 4))
def test_random_programs_are_eagers(first: int):
    packed = [check_program(seed) for seed in range(first, first + PROGRAMS // 4)]
    assert sum(packed) >= len(packed) // 2


class Tagger(nn.Module):
    """Attention with a mask, a perceptron, and a loss that ignores -100."""

    def __init__(self, dropout: float = 0.0, written_out: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.written_out = written_out  # PyTorch's own attention has no second gradient
        self.embedding, self.qkv = nn.Embedding(WORDS, 32), nn.Linear(32, 96)
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(dropout), nn.Linear(64, 32))
        self.head = nn.Linear(32, WORDS)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        x = self.embedding(tokens)
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4)
        if self.written_out:
            y = (q @ k.transpose(2, 3)).masked_fill(~mask[:, None, None, :], -torch.inf).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask[:, None, None, :])
        x = x + y.transpose(1, 2).reshape(b, n, 32)
        logits = self.head(x + self.layers(x))
        if labels is None:
            return logits
        return F.cross_entropy(logits.view(-1, WORDS), labels.view(-1)), logits


def tagged(lengths: list[int], length: int = 24, labelled: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns tokens, mask and labels [B, L]; the first `labelled` of each sequence has labels."""
    generator = torch.Generator().manual_seed(sum(lengths))
    tokens = torch.randint(0, WORDS, (len(lengths), length), generator=generator)
    ends = torch.tensor(lengths)[:, None]
    mask = torch.arange(length)[None] < ends
    return tokens, mask, tokens.masked_fill(torch.arange(length)[None] >= (ends * labelled).long(), -100)


LENGTHS = [6, 9, 3, 4]


def test_rows_that_count_are_known_to_one():
    model = wrap(Tagger(), cache="off")
    loss, logits = model(*tagged(LENGTHS, labelled=0.5))
    status = rekindle.status(model)
    assert (status.packed_calls, status.density, status.loss_density) == (1, 22 / 96, 10 / 96)
    assert int((logits != 0).any(-1).sum()) == 10  # though plans are for multiples of a thirty-second of all rows
    assert loss.isfinite()


def test_a_dense_batch_runs_whole():
    model, arguments = wrap(Tagger(), cache="off"), tagged([24, 24, 24, 22])
    assert bool((model(*arguments)[1] != 0).any(-1).all())
    assert rekindle.status(model).packed_calls == 0
    assert rekindle.status(model).density == 94 / 96


def test_no_row_is_left_out_without_gradients_nor_without_a_loss():
    eager = Tagger().eval()
    model, (tokens, mask, labels) = wrap(eager, cache="off"), tagged(LENGTHS)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens, mask, labels), eager(tokens, mask, labels))
    torch.testing.assert_close(model(tokens, mask), eager(tokens, mask))
    assert rekindle.status(model).packed_calls == 0


def test_why_no_row_is_left_out_is_said(capfd: pytest.CaptureFixture[str]):
    class Whole(Tagger):
        def forward(self, tokens: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            return F.cross_entropy(self.head(self.embedding(tokens).cumsum(1)).mean(1), labels[:, 0])

    model = wrap(Whole(), cache="off", log="info")
    model(*tagged(LENGTHS)).backward()
    said = capfd.readouterr().err
    assert "padding_elimination leaves no row out: all rows are needed by ReduceMean at test_padding.py:" in said
    assert said.count("padding_elimination") == 1


def test_a_gradient_of_rows_that_were_left_out_is_an_error():
    model, arguments = wrap(Tagger(), cache="off"), tagged(LENGTHS, labelled=0.5)
    loss, logits = model(*arguments)
    with pytest.raises(RuntimeError, match="set padding_elimination=False"):
        (loss + logits.logsumexp(-1).mean()).backward()
    loss, logits = model(*arguments)
    counted = arguments[2] != -100
    (loss + logits[counted].pow(2).mean()).backward()  # these are there
    eager = Tagger()
    loss, logits = eager(*arguments)
    (loss + logits[counted].pow(2).mean()).backward()
    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_what_is_written_to_an_input_keeps_all_rows():
    class Writing(Tagger):
        def forward(self, tokens: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor, seen: torch.Tensor) -> Any:  # type: ignore[override]
            with torch.no_grad():
                seen.copy_(self.layers(self.embedding(tokens)))
            return super().forward(tokens, mask, labels)

    eager, arguments, written = Writing(), tagged(LENGTHS), []
    packed = wrap(eager, cache="off")
    for model in (eager, packed):
        written.append(torch.zeros(4, 24, 32))
        model(*arguments, written[-1])
    torch.testing.assert_close(written[1], written[0])
    assert rekindle.status(packed).packed_calls == 1


def test_parts_of_a_module_compute_all_rows():
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tagger = Tagger()

        def forward(self, *arguments: torch.Tensor) -> Any:
            loss, logits = self.tagger(*arguments)
            return (loss if float(loss.detach()) > -1e9 else -loss, logits.detach().logsumexp(-1))

    eager, arguments = Branching(), tagged(LENGTHS, labelled=0.5)
    packed = rekindle.Module(copy.deepcopy(eager), rekindle.Options(padding_elimination=True, cache="off"))
    torch.testing.assert_close(packed(*arguments), eager(*arguments))
    assert rekindle.status(packed).packed_calls == 0


def test_a_comparison_with_eager_reads_all_rows():
    model, arguments = wrap(Tagger(), cache="off"), tagged(LENGTHS, labelled=0.5)
    assert rekindle.verify(model, *arguments)
    assert rekindle.status(model).packed_calls == 0
    model(*arguments)
    assert rekindle.status(model).packed_calls == 1


def test_gradients_of_gradients_are_those_of_the_whole_graph():
    eager, arguments = Tagger(written_out=True), tagged(LENGTHS)
    found = []
    for model in (eager, wrap(eager, cache="off")):
        weight = dict(model.named_parameters())["qkv.weight"]
        (gradient,) = torch.autograd.grad(model(*arguments)[0], weight, create_graph=True)
        gradient.pow(2).sum().backward()
        found.append(weight.grad)
    torch.testing.assert_close(found[1], found[0])


def test_a_budget_changes_no_bit_of_fewer_rows():
    arguments = tagged(LENGTHS)
    one, other = wrap(Tagger(0.3), cache="off"), wrap(Tagger(0.3), cache="off", memory_budget=0.5)
    (result, gradients, drawn), (budgeted, others, drawn_too) = step(one, arguments, 3), step(other, arguments, 3)
    assert rekindle.status(other).packed_calls == 1
    assert torch.equal(result[0], budgeted[0])
    assert torch.equal(result[1], budgeted[1])
    assert torch.equal(drawn, drawn_too)
    for name, gradient in gradients.items():
        assert torch.equal(gradient, others[name])


def test_fewer_rows_take_less_memory():
    arguments = tagged([30, 20, 40, 10] * 4, 128)
    whole = rekindle.Module(Tagger(), rekindle.Options(cache="off"))
    accounts = [rekindle.memory(model, *arguments) for model in (whole, wrap(Tagger(), cache="off"))]
    assert accounts[1].activations < 0.75 * accounts[0].activations


def test_entries_are_the_same_with_and_without(tmp_path: Path):
    arguments = tagged(LENGTHS)
    rekindle.Module(Tagger(), rekindle.Options(cache_dir=str(tmp_path)))(*arguments)
    model = wrap(Tagger(), cache_dir=str(tmp_path))
    model(*arguments)
    status = rekindle.status(model)
    assert (status.exports, status.hits, status.packed_calls) == (0, 1, 1)


def test_ortmodules_variables_say_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ORTMODULE_ENABLE_EMBEDDING_SPARSE_OPTIMIZER", "1")
    monkeypatch.setenv("REKINDLE_CACHE", "off")
    model = ORTModule(Tagger())
    model(*tagged(LENGTHS))
    assert rekindle.status(model).packed_calls == 1


_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": WORDS}
_TRANSFORMERS: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**_SIZES)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**_SIZES, num_key_value_heads=2)),
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=WORDS, decoder_start_token_id=0)
    ),
}


@pytest.mark.parametrize("name", _TRANSFORMERS)
def test_transformers_are_eagers(name: str):
    torch.manual_seed(0)
    eager = _TRANSFORMERS[name]().train()
    packed = wrap(eager, cache="off")
    for seed in range(2):
        tokens, mask, labels = tagged([9 + seed, 5, 3, 12])
        arguments = {"input_ids": tokens, "attention_mask": mask.long(), "labels": labels}
        steps = []
        for model in (eager, packed):
            torch.manual_seed(seed)
            model.zero_grad()
            loss = model(**arguments).loss
            loss.backward()
            gradients = {each: parameter.grad for each, parameter in model.named_parameters()}
            steps.append(((loss,), gradients, torch.rand(2)))
        assert not differences(*steps)
    assert rekindle.status(packed).packed_calls == 2


if __name__ == "__main__":
    import sys

    first, last = map(int, sys.argv[1:])
    print(f"{sum(map(check_program, range(first, last)))} of {last - first} programs left rows out; all are eager's")
