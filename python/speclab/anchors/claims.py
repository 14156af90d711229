"""Forms for published claims about memory traffic, batches, the KV cache and long contexts.

No formula of speculative decoding covers these claims.
"""

from .. import theory
from .judgement import ABOVE_BOUND, CONSISTENT, CONTRADICTION, Judgement, percent
from .reading import Row


def weights_floor(row: Row) -> Judgement:
    """A time per token, compared with its lower bound: the time to move all weights once per step / tau.

    Weights have 16 bits each. bandwidth: GB/s of the link or memory from which the weights are read. Arithmetic is assumed to take no time.
    """
    cost = theory.forward_cost(theory.DecoderShape(**row.shape))
    machine = theory.Machine(peak_flops=1e30, bandwidth=row["bandwidth"] * 1e9)
    step = theory.roofline_seconds(cost, machine) * 1000
    floor, found, name = step / row["tau"], row["t_token"], "bytes / bandwidth / tau"
    if found < floor:
        reason = (
            f"A step moves {cost.bytes / 1e9:.1f} GB at {row['bandwidth']:g} GB/s, which takes {step:.1f} ms. In this "
            f"time it adds {row['tau']:g} tokens (tau) to each text. The stated time per token is possible only if a "
            f"step serves about {floor / found:.0f} texts in one batch, or if most of the weights stay on the device "
            "and are not moved."
        )
        return Judgement(name, "ms per token, at least", floor, found, ABOVE_BOUND, reason)
    reason = f"The published time is {found / floor:.1f} times the shortest possible time."
    if row["tau"] > 1 and found > step:
        reason += (
            f" Autoregressive decoding at the full bandwidth takes {step:.1f} ms per token, "
            "less than the published time with speculation."
        )
    return Judgement(name, "ms per token, at least", floor, found, CONSISTENT, reason)


def batching(row: Row) -> Judgement:
    """Two factors that a source gives for the same change.

    latency: before / after. throughput, utilisation: after / before.
    """
    throughput = row["throughput"]
    if row.get("latency") is not None:
        latency = row["latency"]
        same = row.low("throughput") <= row.high("latency") and row.low("latency") <= row.high("throughput")
        name = "requests in flight = throughput x latency"
        if same:
            reason = (
                "Latency and throughput changed by the same factor, so the number of requests in flight did not change."
            )
            return Judgement(name, "throughput ratio", latency, throughput, CONSISTENT, reason)
        reason = (
            f"The latency fell by a factor of {latency:g}. With the same number of requests in flight, the throughput "
            f"would rise by the same factor. It rose by a factor of {throughput:g}, so "
            f"{throughput / latency:.2f} times as many requests were in flight, and the two figures belong to "
            "different settings."
        )
        return Judgement(name, "throughput ratio", latency, throughput, CONTRADICTION, reason)
    least = throughput * theory.operations_factor(
        1, 1, 0
    )  # the smallest factor: every token accepted, a draft that costs nothing
    found, name = row["utilisation"], "operations per second = throughput x operations per token"
    if row.high("utilisation") >= least:
        reason = (
            f"Both ratios hold if speculation takes {found / throughput:.2f} times as many operations per token as "
            "autoregressive decoding."
        )
        return Judgement(name, "utilisation ratio, at least", least, found, CONSISTENT, reason)
    reason = (
        "Speculation never takes fewer operations per token than autoregressive decoding, so the utilisation of the "
        f"arithmetic units rises by at least the factor of the throughput, {throughput:g}. The published utilisation "
        f"rose by a factor of {found:g}, so it is not the utilisation of the arithmetic units in the same run."
    )
    return Judgement(name, "utilisation ratio, at least", least, found, CONTRADICTION, reason)


def kv_cache(row: Row) -> Judgement:
    """Size of the KV cache in a step that verifies `rows` rows / its size in an autoregressive step."""
    shape = theory.DecoderShape(**row.shape)
    cache = [theory.forward_cost(shape, rows, row["context"]).kv_read_bytes for rows in (row["rows"], 1)]
    least, found, name = cache[0] / cache[1], row["ratio"], "(context + rows) / (context + 1)"
    if row.high("ratio") < 1:
        reason = (
            "Speculation adds the rows of the draft to the cache and takes none away. A smaller cache comes from something else, such as "
            "prefixes that requests share."
        )
        return Judgement(name, "KV cache ratio, at least", least, found, ABOVE_BOUND, reason)
    return Judgement(
        name, "KV cache ratio", least, found, CONSISTENT, f"The published ratio is {percent(found, least)} the formula."
    )


def long_context(row: Row) -> Judgement:
    """A speedup at a long context. The context must not exceed the positions that the target was trained for."""
    context, positions = row["context"], row["positions"]
    name = "context <= positions of the target"
    if context > positions:
        reason = (
            f"The targets of the paper were trained for {positions} positions, so none of them decodes at a context of "
            f"{context} tokens. Neither an acceptance nor tokens per step are given."
        )
        return Judgement(name, "tokens, at most", positions, context, CONTRADICTION, reason)
    return Judgement(
        name, "tokens, at most", positions, context, CONSISTENT, "The target has at least as many positions."
    )
