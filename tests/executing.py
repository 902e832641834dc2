"""Tiny models of many architectures, what transformers itself generates with them, and measured runs of any policy."""

import json
from collections.abc import Iterable, Mapping, Sequence as Ids
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from arcsim.engine.backend import StepResult
from arcsim.engine.loop import Loop
from arcsim.executor.backend import MeasuredBackend
from arcsim.executor.inputs import Inputs
from arcsim.executor.model import PagedModel, load_model
from arcsim.executor.tokens import Vocabulary, ids_of
from arcsim.policies.base import EngineConfig, Policy, Sequence, Step, Tokens
from arcsim.policies.find import find_policy
from arcsim.traces.run import Run
from arcsim.workloads.arrival import Arrival, Piece
from arcsim.workloads.requests import OpenSession

COMMON = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 211, "max_position_embeddings": 256,
    "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
}
WINDOW = 9

TINY: Mapping[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "num_key_value_heads": 4},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 16},
    "mistral": {"model_type": "mistral", "sliding_window": WINDOW},
    "gemma2": {"model_type": "gemma2", "sliding_window": WINDOW, "query_pre_attn_scalar": 8,
               "attn_logit_softcapping": 4.0, "final_logit_softcapping": 8.0, "head_dim": 24},
    "gemma3": {"model_type": "gemma3_text", "sliding_window": WINDOW, "query_pre_attn_scalar": 8,
               "layer_types": ["sliding_attention", "full_attention"]},
    "mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
}
"""Configs small enough to run hundreds of steps in a second, with weights large enough that tokens differ clearly."""

torch.set_num_threads(1)  # two threads beside other work collapse

CLEAR = 1e-3
"""Least lead of the best logit over the second in what is compared, far above the noise of float32 sums."""


@cache
def config_file(kind: str) -> Path:
    path = Path(mkdtemp()) / f"{kind}.json"
    path.write_text(json.dumps(COMMON | TINY[kind]), encoding="utf-8")
    return path


@cache
def tiny(kind: str, seed: int = 0) -> PagedModel:
    """In float32, as the executor loads it."""
    return load_model(str(config_file(kind)), dtype="float32", seed=seed)


@cache
def original(kind: str, seed: int = 0) -> Any:
    """The same weights in transformers' hands alone."""
    torch.manual_seed(seed)
    config = AutoConfig.from_pretrained(config_file(kind))
    network = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    return network.eval()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What transformers generates: tokens, and the logits that they were chosen by [tokens, vocabulary]."""

    tokens: tuple[int, ...]
    logits: Tensor


@cache
def generated(kind: str, prompt: tuple[Piece, ...], output: int, seed: int = 0, end: int | None = None) -> Wanted:
    """One request by itself, greedily; `end`: a token that ends it early."""
    network = original(kind, seed)
    ids = torch.from_numpy(prompt_ids(network.config.vocab_size, prompt))[None]
    with torch.inference_mode():
        found = network.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=output, eos_token_id=end,
            output_logits=True, return_dict_in_generate=True,
        )
    logits = torch.cat(found.logits)
    best = logits.topk(2).values
    assert (best[:, 0] - best[:, 1]).min() > CLEAR, "choose another seed: two tokens are nearly as likely"
    return Wanted(tuple(found.sequences[0, ids.shape[1]:].tolist()), logits)


def prompt_ids(vocabulary: int, prompt: Iterable[Piece]) -> Any:
    tokens = Tokens.of_pieces(prompt)
    return Vocabulary(vocabulary).of(ids_of(tokens, 0, len(tokens)))


class Recording(MeasuredBackend):
    """Keeps who got tokens, and the logits that they were sampled from (of lost and wasted tokens too)."""

    def __init__(self, model: PagedModel, **choices: Any) -> None:
        super().__init__(model, **choices)
        self.sequences: dict[str, Sequence] = {}
        self.logits: dict[str, list[Tensor]] = {}
        self.steps: list[Step] = []
        plain = self.runner.logits

        def noted(inputs: Inputs) -> Tensor:
            logits = plain(inputs)
            named = zip(inputs.sampling, logits, strict=True) if inputs.sampling else ()  # static inputs name nobody
            for sequence, row in named:
                self.logits.setdefault(sequence.id, []).append(row)
            return logits

        self.runner.logits = noted  # type: ignore[method-assign]

    def launch(self, step: Step) -> None:
        self.steps.append(step)
        super().launch(step)

    def collect(self) -> StepResult:
        result = super().collect()
        self.sequences |= {sequence.id: sequence for sequence in result.sampled}
        return result

    @property
    def tokens(self) -> dict[str, list[int]]:
        """The outputs, as the engine has them."""
        return {
            id: sequence.tokens.ids(sequence.prompt_len, sequence.num_tokens) for id, sequence in self.sequences.items()
        }


@dataclass(slots=True)
class Ran:
    """A finished run: its trace, what was sampled, and what the policy did."""

    loop: Loop
    backend: Recording
    run: Run
    preempted: int = field(init=False)
    hits: int = field(init=False)

    def __post_init__(self) -> None:
        self.preempted = sum(len(step.preempted) for step in self.backend.steps)
        self.hits = sum(chunk.cached for step in self.backend.steps for chunk in _chunks(step))


def _chunks(step: Step) -> list[Any]:
    return [chunk for forward in step.forwards for chunk in forward.chunks]


def policy(name: str, engine: EngineConfig, **options: Any) -> Policy:
    """`engine` without what the policy does not heed."""
    found = find_policy(name)
    heeded = {key: value for key, value in engine.model_dump().items() if key in found.engine_keys}
    return found(EngineConfig(**heeded), found.Options(**options))


def serve(
    model: PagedModel, requests: Ids[Arrival], served: Policy, *, outputs: Literal["forced", "sampled"] = "forced",
    **choices: Any,
) -> Ran:
    """Serve requests that all come at once, on the CPU, with the laws checked."""
    engine, ledger = served.engine, None if served.paged else served.ledger
    backend = Recording(
        model, blocks=engine.num_blocks, block_size=engine.block_size, outputs=outputs, ledger=ledger, **choices
    )
    loop = Loop(served, OpenSession(tuple(requests)), backend, audit=True, outputs=outputs)
    loop.run()
    return Ran(loop, backend, loop.recorder.run({}))


def request(id: str, prompt: int | tuple[Piece, ...], output: int, *, max_tokens: int | None = None) -> Arrival:
    pieces: tuple[Piece, ...] = ((f"prompt of {id}", prompt),) if isinstance(prompt, int) else prompt
    return Arrival(id, 0.0, pieces, output, output if max_tokens is None else max_tokens)


def mixed_requests() -> list[Arrival]:
    """Ragged prompts and outputs, of which some share a beginning and two are the same throughout."""
    return [
        request("a", 27, 10), request("b", 5, 12), request("c", (("shared", 20), ("own c", 9)), 8), request("d", 30, 9),
        request("e", (("shared", 20), ("own e", 3)), 10), request("f", 14, 12), request("g", 29, 6),
        request("h", (("shared", 20), ("own c", 9)), 8), request("i", 1, 7),
    ]


def differences(kind: str, ran: Ran, requests: Ids[Arrival]) -> list[str]:
    """Whose tokens are not transformers' own. What an engine runs beyond the end of an output is not looked at."""
    wrong, outputs = [], ran.backend.tokens
    for each in requests:
        wanted = generated(kind, each.prompt, each.output).tokens
        found = tuple(outputs.get(each.id, ()))[:each.output]
        if found != wanted:
            wrong.append(f"{each.id}: {found} instead of {wanted}")
    return wrong


def logit_error(kind: str, ran: Ran, requests: Ids[Arrival]) -> float:
    """Largest difference to transformers' logits."""
    errors = []
    for each in requests:
        found, wanted = ran.backend.logits[each.id][:each.output], generated(kind, each.prompt, each.output).logits
        errors.append(float((torch.stack(found) - wanted).abs().max()))
    return max(errors)


def sequence(id: str, tokens: int, blocks: Ids[int], *, computed: int = 0) -> Sequence:
    """A sequence with a block table of one's choice."""
    made = Sequence(id, range(1 << 30, (1 << 30) + tokens), 8)
    made.block_table, made.computed = list(blocks), computed
    return made
