"""The columns of the trace: name, type and meaning, in the order they are written."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """`kind`: 'int', 'float', 'text', 'ints' or 'floats' (lists), or 'count': a whole number, or null for not told.

    `decision`: two runs that decide alike agree on it.
    """

    name: str
    kind: str
    meaning: str
    decision: bool = True


STEP_COLUMNS: tuple[Column, ...] = (
    Column("step", "int", "number of the step, from 0"),
    Column("t_start", "float", "when it was scheduled, seconds", decision=False),
    Column("t_end", "float", "when its output was there, seconds", decision=False),
    Column("running", "int", "the engine's own gauge after scheduling, with that engine's meaning"),
    Column("waiting", "int", "the engine's own gauge after scheduling"),
    Column("forward_width", "int", "sequences that went into the forward passes, summed over them"),
    Column("prefill_seqs", "int", "rows that prefill"),
    Column("decode_seqs", "int", "rows that decode one token"),
    Column("prefill_tokens", "int", "prompt or recomputed tokens that were computed"),
    Column("padded_tokens", "int", "what a padding engine computed for them (equal where it packs)"),
    Column("decode_tokens", "int", "tokens computed by decode rows"),
    Column("cached_tokens", "int", "prefix-cache hit of the sequences admitted in this step, tokens"),
    Column("recomputed_tokens", "int", "prefill of tokens whose KV had been computed before"),
    Column("reprefill_tokens", "int", "prefill of sequences that had run before they were preempted: the recomputed "
           "tokens and the last sampled one of each"),
    Column("context_tokens", "int", "KV entries read, over all rows (a row's own new tokens included)"),
    Column("attended_tokens", "int", "query-key pairs of the prefill rows under a causal mask"),
    Column("sampled_tokens", "int", "tokens generated, wasted ones excluded"),
    Column("wasted_tokens", "int", "tokens generated past the end of a sequence's output"),
    Column("arrived", "int", "requests that arrived before the step was scheduled"),
    Column("admitted", "int", "sequences admitted for the first time"),
    Column("resumed", "int", "preempted sequences admitted again"),
    Column("prefix_queries", "int", "prefix-cache look-ups, in the engine's own unit"),
    Column("prefix_hits", "int", "prefix-cache hits, in the engine's own unit"),
    Column("preempted", "int", "sequences preempted while scheduling"),
    Column("finished", "int", "sequences whose output was complete after this step"),
    Column("rejected", "int", "requests turned away, at the door or while scheduling"),
    Column("aborted", "int", "requests whose client left"),
    Column("kv_used", "int", "KV units (blocks) held after scheduling"),
    Column("kv_total", "int", "usable KV units (blocks)"),
    Column("host_seconds", "float", "scheduling and input building", decision=False),
    Column("device_seconds", "float", "the model itself", decision=False),
    Column("running_end", "int", "the running gauge after commit"),
    Column("waiting_end", "int", "the waiting gauge after commit"),
    Column("kv_used_end", "int", "KV units held after commit"),
    Column("logged_tokens", "int", "what the engine's own logger counts as throughput"),
    Column("pending_tokens", "int", "what the engine's own logger calls pending (0 where it has no such number)"),
    Column("forward_widths", "ints", "the width of each forward pass"),
)

REQUEST_COLUMNS: tuple[Column, ...] = (
    Column("id", "text", "the request's name"),
    Column("arrival", "float", "seconds"),
    Column("first_scheduled", "float", "start of the first step it ran in, seconds; NaN: never", decision=False),
    Column("first_token", "float", "when its first token was there, seconds; NaN: never", decision=False),
    Column("finish", "float", "when its last token was there, seconds; NaN: not finished", decision=False),
    Column("prompt_tokens", "int", "tokens"),
    Column("output_tokens", "int", "tokens generated"),
    Column("cached_tokens", "int", "prefix hit of its first admission, tokens"),
    Column("recomputed_tokens", "int", "tokens whose KV was computed more than once"),
    Column("preemptions", "int", "how often it was preempted"),
    Column("status", "text", "finished, rejected, aborted or unfinished"),
    Column("reason", "text", "why it was rejected or aborted, or what it waits for"),
    Column("token_times", "floats", "when each token was there, seconds", decision=False),
)

SAMPLE_COLUMNS: tuple[Column, ...] = (
    Column("time", "float", "when the engine said so, seconds from the first record of its log; NaN: no clock"),
    Column("kind", "text", "interval, prefill, decode, iteration, request; an event (preempt, retract, full) has no "
           "counts"),
    Column("rank", "count", "which engine, replica or rank of the log it is of"),
    Column("running", "count", "the engine's own gauge, with that engine's meaning; null: not told"),
    Column("waiting", "count", "the engine's own gauge; null: not told"),
    Column("swapped", "count", "sequences in CPU memory, beside the waiting ones"),
    Column("deferred", "count", "those among the waiting that wait for something other than room"),
    Column("paused", "count", "those among the waiting that had run before"),
    Column("outside", "count", "requests that wait before the engine, beside the waiting ones"),
    Column("prompt_throughput", "float", "tokens per second of the window before it; NaN: not told"),
    Column("generation_throughput", "float", "tokens per second of the window before it; NaN: not told"),
    Column("kv_usage", "float", "share of the KV cache in use, 0 to 1; NaN: not told"),
    Column("hit_rate", "float", "share of prefix-cache look-ups that hit, over the engine's own window; NaN: not told"),
    Column("preemptions", "count", "preemptions that the log has told of so far; null: none yet, or never told"),
)
