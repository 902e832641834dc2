"""vLLM's scheduler once more, as plainly as it goes: every request looked at in every step, lists searched.

Records golden traces of random cases, for the policy to be compared with: its decode batch, calendars and memos must
not show. Agreed with the real scheduler (0.27.1) on 15,000 random cases when it was written.
"""

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(eq=False)
class Request:
    """A request as the scheduler keeps it. `flying`: its rows in flight, `stale` of them from before a preemption."""

    id: str
    arrival: float
    priority: int
    limit: int
    output: int
    base: int
    tokens: list[int]
    prompt: int
    computed: int = 0
    placeholders: int = 0
    stale: int = 0
    preemptions: int = 0
    blocks: list[int] = field(default_factory=list)
    cached: int = 0

    @property
    def rank(self) -> tuple[int, float]:
        return self.priority, self.arrival


class Pool:
    """Free blocks in order of reuse, and for each cached block the beginning that it completes."""

    def __init__(self, blocks: int, size: int, caching: bool) -> None:
        self.free = list(range(1, blocks + 1))
        self.size, self.caching = size, caching
        self.held: dict[int, int] = {}
        self.cached: dict[int, tuple[int, ...]] = {}

    def hit(self, request: Request) -> list[int]:
        found: list[int] = []
        while self.caching and (len(found) + 1) * self.size < len(request.tokens):
            key = tuple(request.tokens[:(len(found) + 1) * self.size])
            block = next((block for block, other in self.cached.items() if other == key), None)
            if block is None:
                break
            found.append(block)
        return found

    def take(self, request: Request, hit: list[int], count: int) -> list[int]:
        for block in hit:
            if block in self.free:
                self.free.remove(block)
            self.held[block] = self.held.get(block, 0) + 1
        new, self.free = self.free[:count], self.free[count:]
        for block in new:
            self.cached.pop(block, None)
            self.held[block] = 1
        request.blocks += hit + new
        return new

    def cache(self, request: Request, tokens: int) -> None:
        full = tokens // self.size if self.caching else 0
        for place in range(request.cached, full):
            self.cached.setdefault(request.blocks[place], tuple(request.tokens[:(place + 1) * self.size]))
        request.cached = max(request.cached, full)

    def release(self, request: Request) -> None:
        idle = []
        for block in reversed(request.blocks):
            self.held[block] -= 1
            if not self.held[block]:
                idle.append(block)
        kept = [block for block in idle if block in self.cached or not self.caching]
        self.free = [block for block in idle if block not in kept] + self.free + kept
        request.blocks, request.cached = [], 0


class Plain:
    """`config` as in a golden trace."""

    def __init__(self, config: Row) -> None:
        self.c = config
        self.overlap = bool(config["async_scheduling"])
        self.pool = Pool(config["num_gpu_blocks"], config["block_size"], config["enable_prefix_caching"])
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.prefix: dict[str, list[int]] = {}

    def push(self, request: Request) -> None:
        self.waiting.append(request)
        if self.c["policy"] == "priority":
            self.waiting.sort(key=lambda r: (r.rank, r.id))

    def need(self, tokens: int) -> int:
        return -(-min(tokens, int(self.c["max_model_len"])) // self.pool.size)

    def schedule(self) -> tuple[Row, list[tuple[Request, int, bool]]]:
        self.budget = self.c["max_num_batched_tokens"]
        self.rows: list[tuple[Request, int]] = []
        self.preempted: list[Request] = []
        self.new: dict[str, list[int]] = {}
        self.blocks: dict[str, list[int]] = {}
        self.refused: list[list[Any]] = []
        self.run()
        admitted: list[Request] = []
        while not self.preempted and self.waiting and self.budget > 0 and len(self.running) < self.c["max_num_seqs"]:
            if not self.admit(admitted):
                break
        return self.decided(admitted)

    def run(self) -> None:
        place = 0
        while place < len(self.running) and self.budget > 0:
            request = self.running[place]
            length = self.wanted(request)
            if length <= 0:
                place += 1
                continue
            while self.need(request.computed + length) - len(request.blocks) > len(self.pool.free):
                victim = self.running[-1] if self.c["policy"] == "fcfs" else max(self.running, key=lambda r: r.rank)
                self.running.remove(victim)
                if any(row is victim for row, _ in self.rows):
                    self.budget += sum(n for row, n in self.rows if row is victim)
                    self.rows = [(row, n) for row, n in self.rows if row is not victim]
                    self.blocks.pop(victim.id, None)
                    place -= 1
                self.preempt(victim)
                if victim is request:
                    return
            new = self.pool.take(request, [], max(0, self.need(request.computed + length) - len(request.blocks)))
            if new:
                self.blocks[request.id] = new
            self.pool.cache(request, min(request.computed + length, len(request.tokens)))
            self.rows.append((request, length))
            self.budget -= length
            place += 1

    def wanted(self, request: Request) -> int:
        if request.placeholders and request.computed + 2 - request.placeholders >= request.prompt + request.limit:
            return 0
        length = len(request.tokens) + request.placeholders - request.computed
        length = min(length, self.c["long_prefill_token_threshold"] or length, self.budget)
        return int(min(length, self.c["max_model_len"] - request.computed - 1))

    def preempt(self, victim: Request) -> None:
        self.pool.release(victim)
        victim.computed, victim.stale, victim.placeholders = 0, victim.stale + victim.placeholders, 0
        victim.preemptions += 1
        self.preempted.append(victim)
        if self.c["policy"] == "fcfs":
            self.waiting.insert(0, victim)
        else:
            self.push(victim)

    def admit(self, admitted: list[Request]) -> bool:
        head = self.waiting[0]
        hit = self.pool.hit(head)
        cached = len(hit) * self.pool.size
        length = len(head.tokens) - cached
        length = min(length, self.c["long_prefill_token_threshold"] or length)
        fits = self.c["enable_chunked_prefill"] or length <= self.budget
        length = min(length, self.budget)
        spare = int(self.c["watermark"] * (self.c["num_gpu_blocks"] + 1)) if self.running else 0
        idle = sum(block in self.pool.free for block in hit)
        for tokens in (cached + length, *([len(head.tokens)] if self.c["scheduler_reserve_full_isl"] else [])):
            fits = fits and self.need(tokens) - len(hit) + idle + spare <= len(self.pool.free)
        if not fits:
            self.refused = [[head.id, cached]]
            return False
        self.waiting.pop(0)
        self.pool.take(head, hit, self.need(cached + length) - len(hit))
        head.cached, head.computed = len(hit), cached
        self.blocks[head.id] = list(head.blocks)
        self.pool.cache(head, cached + length)
        self.running.append(head)
        self.rows.append((head, length))
        self.budget -= length
        admitted.append(head)
        if self.pool.caching:
            sums = self.prefix.setdefault("prefix_preempted" if head.preemptions else "prefix", [0, 0, 0])
            sums[:] = sums[0] + 1, sums[1] + len(head.tokens), sums[2] + cached
        return True

    def decided(self, admitted: list[Request]) -> tuple[Row, list[tuple[Request, int, bool]]]:
        before = {request.id: request.computed for request, _ in self.rows}
        flight = []
        for request, length in self.rows:
            request.computed += length
            samples = request.computed == len(request.tokens) + request.placeholders
            request.placeholders += samples
            flight.append((request, length, samples))
        row: Row = {
            "scheduled": {request.id: length for request, length in self.rows},
            "new": [r.id for r in admitted if not r.preemptions], "resumed": [r.id for r in admitted if r.preemptions],
            "preempted": [r.id for r in self.preempted], "num_computed_tokens": before,
            "cached_tokens": {r.id: before[r.id] for r in sorted(admitted, key=lambda r: r.preemptions > 0)},
            "new_blocks": {r.id: self.blocks[r.id] for r, _ in self.rows if r.id in self.blocks},
            "running": [r.id for r in self.running], "waiting": [r.id for r in self.waiting],
            "free_blocks": len(self.pool.free), "sampled": [r.id for r, _, samples in flight if samples],
        }
        return row | ({"rejected_lookup": self.refused} if self.refused else {}), flight

    def update(self, flight: list[tuple[Request, int, bool]], live: dict[str, Request]) -> Row:
        finished = []
        for request, _, samples in flight:
            if not samples or request.id not in live:
                continue
            stale = request.stale > 0
            request.stale -= stale
            request.placeholders -= not stale
            request.tokens.append(request.base + len(request.tokens) - request.prompt)
            if request in self.running and self.overlap:
                self.pool.cache(request, request.computed - request.placeholders)
            generated = len(request.tokens) - request.prompt
            ends = generated >= min(request.output, request.limit) or len(request.tokens) >= self.c["max_model_len"]
            if ends:
                finished.append(request.id)
                self.leave(live.pop(request.id))
        usable = self.c["num_gpu_blocks"]
        stats = {"running": len(self.running), "waiting": len(self.waiting),
                 "kv_cache_usage": round(1.0 - len(self.pool.free) / usable, 9)} | self.prefix
        self.prefix = {}
        return {"finished": finished, "stats": stats}

    def leave(self, request: Request) -> None:
        self.pool.release(request)
        (self.running if request in self.running else self.waiting).remove(request)


def record(config: Row, requests: list[Row], aborts: list[Row], most: int) -> Row:
    """A golden trace of at most `most` steps."""
    plain, live, steps, idle = Plain(config), dict[str, Request](), list[Row](), 0
    flying: list[list[tuple[Request, int, bool]]] = []
    while len(steps) < most and idle < 12:
        number = len(steps)
        arrived = [r for r in requests if r["arrival_step"] == number]
        for r in arrived:
            prompt = list(r["prompt_token_ids"])
            limit, output = r["max_tokens"] if "max_tokens" in r else r["output_len"], r["output_len"]
            live[r["id"]] = Request(r["id"], r["arrival_time"], r["priority"], limit, output, r["output_token_base"],
                                    prompt, len(prompt))
            plain.push(live[r["id"]])
        aborted = [a["id"] for a in aborts if a["step"] == number and a["id"] in live]
        for id in aborted:
            plain.leave(live.pop(id))
        row, flight = plain.schedule()
        flying.append(flight)
        told: Row = {"finished": [], "stats": None}
        if len(flying) > plain.overlap:
            told = plain.update(flying.pop(0), live)
        steps.append({"step": number, "arrived": [r["id"] for r in arrived]} | row | told
                     | ({"aborted": aborted} if aborted else {}))
        to_come = any(r["arrival_step"] > number for r in requests)
        idle = 0 if row["scheduled"] or row["preempted"] or told["finished"] or to_come else idle + 1
        if not live and not to_come:
            break
    unfinished = [r["id"] for r in requests if r["id"] in live or r["arrival_step"] >= len(steps)]
    outcome = "completed" if not unfinished else "stalled" if idle >= 12 else "max_steps"
    return {"engine": "vllm", "config": config, "requests": requests, "aborts": aborts, "steps": steps,
            "outcome": outcome, "unfinished": unfinished}
