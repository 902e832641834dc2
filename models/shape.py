"""The shape of a model: what its weights and its KV cache take, and what a token costs."""

from dataclasses import dataclass
from pathlib import Path

from .attention import Attention, read_attention
from .config_file import ConfigFile, ModelError
from .dtype import bytes_of, canonical
from .family import family_of
from .feed_forward import FeedForward, read_feed_forward
from .find import existing, unknown

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Counts are in parameters (numbers) and tokens.

    `dtype` is that of activations, embeddings, the output head and the KV cache; `weight_dtype` that of the other
    weights, narrower where the checkpoint is quantised. `norms`: parameters of all RMSNorms of hidden size.
    `supports_paged_attention` is arcsim's own key of the config: false where the engine keeps the model's KV dense.
    A sliding window is not credited: the KV cache keeps every token and attention reads all of it.
    """

    name: str
    family: str
    dtype: str
    weight_dtype: str
    layers: int
    hidden_size: int
    vocab_size: int
    max_model_len: int
    tied: bool
    norms: int
    attention: Attention
    feed_forward: FeedForward
    supports_paged_attention: bool = True

    @property
    def dtype_bytes(self) -> float:
        return bytes_of(self.dtype)

    @property
    def embedding(self) -> int:
        """Parameters of the input embedding, and of the output head."""
        return self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        body = self.layers * self.attention.parameters + self.feed_forward.parameters + self.norms
        return body + self.embedding * (1 if self.tied else 2)

    @property
    def active_parameters(self) -> int:
        """Parameters that serve one token: all, less the routed experts that it does not pass."""
        return self.parameters - self.feed_forward.parameters + self.feed_forward.active

    @property
    def flops_per_token(self) -> int:
        """Of the matrix products of all layers (2 per weight), attention over the context and the head left out."""
        return 2 * (self.layers * self.attention.parameters + self.feed_forward.active)

    @property
    def head_flops(self) -> int:
        """Of the output head, per row that samples."""
        return 2 * self.embedding

    @property
    def prefill_pair_flops(self) -> int:
        """Of attention, per query-key pair of a prefill, all layers."""
        return self.layers * self.attention.prefill_flops

    @property
    def decode_pair_flops(self) -> int:
        """Of attention, per KV entry that a decode row reads, all layers."""
        return self.layers * self.attention.decode_flops

    def weight_bytes(self, dtype: str | None = None) -> float:
        """All weights, the layers in `dtype` (default `weight_dtype`); embedding and head stay in `self.dtype`."""
        outer = self.embedding * (1 if self.tied else 2)
        return (self.parameters - outer) * bytes_of(dtype or self.weight_dtype) + outer * self.dtype_bytes

    def kv_bytes_per_token(self, dtype: str | None = None, tensor_parallel: int = 1) -> float:
        """Of all layers on one rank. KV heads are split over the ranks, at least one on each."""
        shards = self.attention.kv_shards
        held = -(-shards // min(tensor_parallel, shards))  # the rank that holds most
        return self.layers * self.attention.kv_width / shards * held * bytes_of(dtype or self.dtype)


def presets() -> list[str]:
    """Names of the bundled models."""
    return sorted(path.stem for path in HERE.glob("*.json"))


def find_config(name_or_path: str, base: Path | None = None) -> Path:
    """The `config.json` of a preset, of a Hugging Face directory or of a path to such a file (relative to `base`).

    Raises ModelError where there is none.
    """
    if name_or_path in presets():
        return HERE / f"{name_or_path}.json"
    path = existing(name_or_path, base)
    if path is None:
        files = "a Hugging Face directory or a config.json"
        raise ModelError(unknown("model", name_or_path, presets(), files))
    if path.is_dir() and not (path / "config.json").is_file():
        raise ModelError(f"{path}: a model directory needs a config.json, this one has none")
    return path / "config.json" if path.is_dir() else path


def load_model(name_or_path: str, base: Path | None = None) -> ModelShape:
    """The shape of a preset, a Hugging Face directory or a config file. Raises ModelError with the reason."""
    path = find_config(name_or_path, base)
    name = path.parent.name if path.name == "config.json" else path.stem
    return read_shape(ConfigFile.read(path), name)


def read_shape(config: ConfigFile, name: str) -> ModelShape:
    """The shape from the keys of a config."""
    family = family_of(config)
    layers, hidden = config.positive("num_hidden_layers"), config.positive("hidden_size")
    dtype = _dtype(config)
    return ModelShape(
        name=name, family=config.text("model_type"), dtype=dtype, weight_dtype=_weight_dtype(config, dtype),
        layers=layers, hidden_size=hidden, vocab_size=config.positive("vocab_size"),
        max_model_len=config.positive("max_position_embeddings"),
        tied=config.flag("tie_word_embeddings", family.tied), norms=(layers * family.norms + 1) * hidden,
        attention=read_attention(config, family), feed_forward=read_feed_forward(config, family),
        supports_paged_attention=config.flag("supports_paged_attention", True),
    )


def _dtype(config: ConfigFile) -> str:
    """`torch_dtype`, or `dtype` as newer files call it; bfloat16 where the file has neither."""
    return _canonical(config, config.text("torch_dtype", config.text("dtype", "bfloat16")))


def _weight_dtype(config: ConfigFile, dtype: str) -> str:
    """Of the layers, from `quantization_config`: FP8, or the whole-number formats that state their bits."""
    quantisation = config.part("quantization_config")
    if quantisation is None:
        return dtype
    method = quantisation.text("quant_method")
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8"
    if "bits" not in quantisation.keys:
        raise ModelError(f"{config.path}: quantization_config of method '{method}' is not understood: fp8, fbgemm_fp8 "
                         "and methods with a key 'bits' are")
    return _canonical(config, f"int{quantisation.positive('bits')}")


def _canonical(config: ConfigFile, dtype: str) -> str:
    try:
        return canonical(dtype)
    except ValueError as error:
        raise ModelError(f"{config.path}: {error}") from None
