"""The published tables that configs repeat. For each: the config, the published numbers, and the devices whose times
are used to calculate the speedup of a run.

paper_page.py reads TABLES. A new table is a config with "published" and an entry here; configs/paper/README.md has a
line for each of them.
"""

import dataclasses
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
ANCHORS = ROOT / "python/speclab/anchors/tables"
COSTS = "configs/paper/devices"


@dataclasses.dataclass(frozen=True)
class Table:
    """anchors: names of the tables in python/speclab/anchors/tables with the published numbers. devices: names of files in
    configs/devices, or paths of device files; none if the source does not name its device, or publishes no time. batch: number of
    sequences that the devices decode at the same time."""

    pack: str
    config: str
    anchors: tuple[str, ...]
    devices: tuple[str, ...] = ()
    batch: int = 1

    @property
    def name(self):
        """The name in the config, which its runs have too."""
        return pathlib.PurePosixPath(self.config).stem

    def settings(self):
        """What was published: the titles of the anchors, each with its source."""
        for name in self.anchors:
            anchor = json.loads((ANCHORS / f"{name}.json").read_text(encoding="utf-8"))
            yield f"{anchor['title']} ({anchor['source']})"


def _paper(pack, name, anchors, devices=(), batch=1):
    return Table(pack, f"configs/paper/{name}.json", tuple(anchors.split()), devices, batch)


def _config(pack, name, anchors, devices=()):
    return Table(pack, f"configs/{name}.json", tuple(anchors.split()), devices)


TABLES = (
    _paper("P1", "leviathan_table2", "leviathan_table2", ("tpu_v4", f"{COSTS}/t5_xxl.json")),
    _paper("P1", "leviathan_table3", "leviathan_table3 leviathan_bigram", ("tpu_v4", f"{COSTS}/t5_xxl.json")),
    _paper("P1", "leviathan_lenience", "leviathan_lenience", ("tpu_v4", f"{COSTS}/t5_xxl_ende.json")),
    _paper("P2", "chen_table1", "chen_table1", ("tpu_v4x16", f"{COSTS}/chinchilla_70b.json")),
    _paper("P3", "gpt2_report", "toyllm_times toyllm_theory"),
    _config("P5", "specinfer_table1", "specinfer_table1"),
    _config("P5", "specinfer_table2", "specinfer_table2 specinfer_table3"),
    _config("P6", "sequoia_table", "sequoia_a100", ("a100", f"{COSTS}/llama2_7b_68m.json")),
    _config(
        "P7",
        "lookahead_ablation",
        "lookahead_ablation lookahead_speedups lookahead_sampling lookahead_tinyllama",
        ("a100",),
    ),
    _paper("P9, P10", "spec_bench", "spec_bench eagle3_table1", ("a100",)),
    _config("P9, P10", "leaderboard_draft_free", "spec_bench eagle3_table1", ("a100",)),
    _config("P10", "leaderboard_retrieval", "spec_bench", ("a100",)),
    _paper("P11", "prompt_lookup", "prompt_lookup"),
    _paper("P11", "rest_humaneval", "rest_codellama", ("a6000",)),
    _paper("P11", "suffix_vllm", "suffix_vllm"),
    _paper("P12", "staged_humaneval", "staged", ("rtx4090",)),
    _paper("P13", "magicdec", "magicdec", ("l40x8", "h100x4", "h100x8"), batch=32),
    _config("P14", "jacobi", "jacobi jacobi_llm"),
    _paper("P14", "self_drafts", "speedups_alone"),
    _paper("P14", "spectr", "speedups_alone"),
    _paper("P14", "consumer_gpu", "consumer_gpu"),
)

LEFT_OUT = (
    "P4 (Stern et al. 2018), P8 (Medusa), the rows of Medusa, Hydra and EAGLE in P9 and P10, and multi-token prediction in P14: "
    "their drafts are heads that were trained for the target, and there are none for this target.",
    "P6, weights in the memory of the host, and other pairs of models: their trees of 768 and of 64 nodes were chosen for those "
    "models. `speclab simulate RUN --device l40_offload` calculates the speedup of a run of `sequoia_table` with such weights.",
    "P9, speedups of servers by batch: a run decodes one text at a time. `speclab simulate RUN --device h100 --sweep batch` "
    "calculates the speedup of batches.",
    "P7, infilling and targets of 13B to 70B, and P5, the other four data sets: they repeat the same settings.",
    "P14, parsing with LayerSkip: there are no such prompts.",
)
