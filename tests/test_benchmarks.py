"""The benchmark's logic on tiny shapes; how fast anything is, only in the slow checks."""

import itertools
import json
import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import attention, contestants, long_inputs, report

TINY = (2, 6, 16, 4)
SPREAD = {"median", "quartiles"}


@pytest.fixture(scope="module")
def results():
    return attention.run([TINY], attention.MODES, seconds=0, min_rounds=3, bar=False)


def numbers(spread):
    return [spread["median"], *spread["quartiles"]]


def test_every_block_is_measured(results):
    blocks = results["blocks"]
    assert [(b["is_causal"], b["mode"]) for b in blocks] == list(
        itertools.product((False, True), attention.MODES)
    )
    assert all(b["shape"] == list(TINY) and b["rounds"] == 3 for b in blocks)
    assert json.loads(json.dumps(results)) == results


def test_times_and_ratios_are_positive_and_in_order(results):
    for block in results["blocks"]:
        found = [*block["milliseconds"].values(), *block["relative"].values()]
        found += [*block["against_fastest"].values(), block["share_of_limit"]]
        for spread in found:
            assert set(spread) - {"peer"} == SPREAD
            low, high = spread["quartiles"]
            assert 0 < low <= spread["median"] <= high
        assert block["milliseconds"].keys() == block["relative"].keys()
        assert numbers(block["relative"][contestants.OURS]) == [1, 1, 1]


def test_everyone_takes_part(results):
    names = {
        mode: [set(b["milliseconds"]) for b in results["blocks"] if b["mode"] == mode]
        for mode in attention.MODES
    }
    everyone = {e.name for e in contestants.contestants(TINY, False)} | {attention.LIMIT}
    forward, both = names.values()
    assert forward == [everyone, everyone]
    only_forward = {name for name in everyone if "eval" in name}
    assert both == [everyone - only_forward] * 2


def test_each_of_ours_meets_its_own_kind(results):
    for block in results["blocks"]:
        peers = {ours: found["peer"] for ours, found in block["against_fastest"].items()}
        assert not any(peer.startswith("mhalib") for peer in peers.values())
        assert "GQA" not in peers[contestants.OURS]
        assert peers[contestants.OURS_WITH_WEIGHTS].startswith("nn.MultiheadAttention")
        assert peers[contestants.OURS_WITH_WEIGHTS].endswith("with weights")
        assert peers[contestants.OURS_GROUPED] == contestants.LLAMA_GROUPED


def test_about_says_where_and_how(results):
    about = results["about"]
    assert set(about["versions"]) == {"torch", "transformers", "mhalib"}
    assert about["clock"] == "wall time"
    assert about["threads"] == torch.get_num_threads()
    assert all(about[key] for key in ("date", "command", "processor", "cores", "python"))


@pytest.mark.parametrize("is_causal", [False, True])
def test_outputs_are_compared_before_anything_is_timed(is_causal):
    entries = contestants.contestants(TINY, is_causal)
    x = torch.randn(2, 6, 16)
    with attention.no_rotation():
        attention.check_equal(entries, x)
        for entry in entries[1:]:
            with torch.no_grad():
                next(entry.module.parameters()).add_(1)
            with pytest.raises(AssertionError, match="another output"):
                attention.check_equal(entries, x)
            with torch.no_grad():
                next(entry.module.parameters()).sub_(1)
    double = contestants.Contestant(
        "double",
        lambda x: (entries[0].run(x)[0], 2 * entries[7].run(x)[1]),
        entries[0].module,
        True,
    )
    with attention.no_rotation(), pytest.raises(AssertionError, match="double gives other weights"):
        attention.check_equal([*entries, double], x)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", [TINY, *attention.SHAPES])
def test_the_limit_has_the_flops_of_the_attention(shape, is_causal):
    batch, seq_len, d_model, _ = shape
    pairs = seq_len * (seq_len + 1) // 2 if is_causal else seq_len**2
    expected = 8 * batch * seq_len * d_model**2 + 4 * batch * pairs * d_model
    assert attention.flops(shape, is_causal) == expected
    for mode, passes in zip(attention.MODES, (1, 3), strict=True):
        with torch.device("meta"):
            product = attention.plain_product(shape, is_causal, mode)
            with FlopCounterMode(display=False) as counter:
                product()
        assert counter.get_total_flops() == passes * expected


def test_backward_reaches_the_input_and_every_parameter():
    x = torch.randn(2, 6, 16)
    with attention.no_rotation():
        for entry in contestants.contestants(TINY, True):
            attention.one_pass(entry, x, attention.MODES[1])()  # raises for one that is not used


def test_table_and_figure(results, tmp_path):
    rows = report.table(results).splitlines()
    assert len(rows) == 2 + 4
    assert len({row.count("|") for row in rows}) == 1
    assert "2 × 6 × 16 × 4, causal" in rows[-1]
    report.figure(results).savefig(tmp_path / "figure.png")


@pytest.mark.parametrize("text", ["8x256x512", "8x256x512x7", "0x4x8x2"])
def test_a_shape_that_does_not_fit(text, capsys):
    with pytest.raises(SystemExit):
        attention.main(["--shapes", text])
    assert "BATCHxLENGTHxD_MODELxHEADS" in capsys.readouterr().err


def test_from_the_command_line(tmp_path):
    options = "--shapes 1x4x8x2 1x5x8x2 --seconds 0 --min-rounds 2 --threads 1 --cpu-clock"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.attention", *options.split(), "--results", tmp_path],
        cwd=attention.FOLDER.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "| 1 × 4 × 8 × 2, causal | forward + backward |" in done.stdout
    saved = json.loads((tmp_path / "attention.json").read_text(encoding="utf-8"))
    assert saved["about"]["clock"] == "CPU time"
    assert saved["about"]["threads"] == 1
    assert "--shapes 1x4x8x2 1x5x8x2" in saved["about"]["command"]
    assert [block["shape"][1] for block in saved["blocks"]] == [4] * 4 + [5] * 4
    assert (tmp_path / "attention.png").stat().st_size > 10_000


def test_the_saved_results_are_those_of_the_readme():
    saved = json.loads((attention.RESULTS / "attention.json").read_text(encoding="utf-8"))
    text = (attention.FOLDER / "README.md").read_text(encoding="utf-8")
    assert report.table(saved) in text
    assert report.conditions(saved) in text
    assert {tuple(block["shape"]) for block in saved["blocks"]} == set(attention.SHAPES)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", attention.MODES)
def test_no_peer_is_much_faster(mode):
    """With CPU time on one thread, which a busy machine disturbs least, and a wide margin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        shapes = [(4, 128, 256, 4)]
        results = attention.run(shapes, [mode], seconds=2, min_rounds=10, cpu_clock=True, bar=False)
    finally:
        torch.set_num_threads(threads)
    for block in results["blocks"]:
        for ours, found in block["against_fastest"].items():
            assert found["median"] < 1.25, (ours, found)
        assert 0.3 < block["share_of_limit"]["median"] < 1.2


# decoding and long inputs


@pytest.fixture(scope="module")
def long_results():
    sizes = {"layers": [(16, 4, 4), (16, 4, 2)], "tokens": 12, "sizes": (24, 2, 4)}
    return long_inputs.run(**sizes, seconds=0, min_rounds=3, bar=False)


def test_steps_and_blocks_are_measured_and_counted(long_results):
    *steps, blocks = long_results["blocks"]
    assert [len(found["milliseconds"]) for found in long_results["blocks"]] == [3, 3, 2]
    assert all(found["flops"] == 12 for found in steps)
    assert [found["against_peer"]["peer"] for found in steps] == [long_inputs.STATIC] * 2
    assert blocks["against_peer"]["peer"] == long_inputs.FUSED
    assert blocks["scores"] == 4 * 2 * 24**2
    assert json.loads(json.dumps(long_results)) == long_results


def test_a_step_can_be_undone_and_is_the_same_again():
    with torch.no_grad(), attention.no_rotation():
        for run, forget in long_inputs.one_more_token((16, 4, 2), 12).values():
            first = run()
            forget()
            assert torch.equal(run(), first)


def test_another_output_is_no_contestant():
    runs = {"ours": (lambda: torch.ones(2), list), "theirs": (lambda: torch.zeros(2), list)}
    with pytest.raises(AssertionError, match="theirs gives another output"):
        long_inputs.measure(runs, seconds=0, min_rounds=2)


def test_the_long_table_lands_between_its_marks(long_results, tmp_path):
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- long inputs -->\nold\n<!-- end of long inputs -->\nafter\n")
    report.update(path, "long inputs", long_results, long_inputs.table(long_results))
    text = path.read_text(encoding="utf-8")
    assert "old" not in text
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "| token 12 of d_model 16, 4 heads, 2 key/value heads |" in text
    assert "without a cache 12 × the FLOPs" in text
