"""The results of `attention.py` as a table in Markdown and as a figure."""

import re

import matplotlib.pyplot as plt

from benchmarks import contestants
from mhalib import figures

TITLES = {
    contestants.OURS: "without weights",
    contestants.OURS_WITH_WEIGHTS: "with weights",
    contestants.OURS_GROUPED: "GQA",
}


def shape_name(shape):
    """ "8x256x512x8" for (batch, seq_len, d_model, num_heads)."""
    return "x".join(map(str, shape))


def table(results):
    """Our layer's time over that of the fastest peer, and the share of the limit it reaches."""
    rows = [["batch × tokens × d_model × heads", "pass", "ms", "share of limit", *TITLES.values()]]
    rows.append(["---"] * len(rows[0]))
    for block in results["blocks"]:
        row = [
            " × ".join(map(str, block["shape"])) + (", causal" if block["is_causal"] else ""),
            block["mode"],
            f"{block['milliseconds'][contestants.OURS]['median']:.1f}",
            f"{100 * block['share_of_limit']['median']:.0f} %",
        ]
        for ours in TITLES:
            found = block["against_fastest"][ours]
            low, high = found["quartiles"]
            row.append(f"**{found['median']:.2f}** ({low:.2f} to {high:.2f}) {found['peer']}")
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def conditions(results):
    """Machine, versions, date and command, in a list."""
    about = results["about"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return "\n".join(
        [
            f"- **machine:** {about['processor']}, {about['cores']} cores, {about['system']}, "
            f"{about['instructions']}; {about['threads']} thread(s) of PyTorch, {about['dtype']}",
            f"- **versions:** Python {about['python']}, {versions}",
            f"- **date:** {about['date']}, load {about['load']} at the start",
            f"- **command:** `{about['command']}`, {about['clock']}, "
            f"{min(block['rounds'] for block in results['blocks'])} or more rounds a line",
        ]
    )


def update(path, name, results, table):
    """Put the conditions and the table into the README, between the two marks of that name."""
    text = path.read_text(encoding="utf-8")
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    new = f"{start}\n{conditions(results)}\n\n{table}\n{end}"
    path.write_text(re.sub(f"{start}.*{end}", lambda _: new, text, flags=re.DOTALL), "utf-8")


def figure(results):
    """A panel for each kind of pass: every contestant's time relative to ours, a dot a shape."""
    modes = list(dict.fromkeys(block["mode"] for block in results["blocks"]))
    names = [name for name in results["blocks"][0]["relative"] if name != contestants.OURS][::-1]
    shapes = list(dict.fromkeys(tuple(block["shape"]) for block in results["blocks"]))
    with plt.rc_context(figures.STYLE):
        fig, panels = plt.subplots(1, len(modes), figsize=(11, 5.5), sharey=True, squeeze=False)
        for panel, mode in zip(panels[0], modes, strict=True):
            blocks = [block for block in results["blocks"] if block["mode"] == mode]
            for block in blocks:
                index = shapes.index(tuple(block["shape"]))
                known = [name for name in names if name in block["relative"]]
                panel.plot(
                    [block["relative"][name]["median"] for name in known],
                    [names.index(name) + 0.12 * (index - (len(shapes) - 1) / 2) for name in known],
                    "D" if block["is_causal"] else "o",
                    color=figures.PALETTE[index],
                    markerfacecolor="white" if block["is_causal"] else None,
                    markersize=5,
                    label=shape_name(block["shape"]) + (" causal" if block["is_causal"] else ""),
                )
            panel.axvline(1, color="0.4", linewidth=1, zorder=0)
            panel.set(xscale="log", xlabel="time / time of mhalib without weights", title=mode)
            ticks = (0.5, 0.7, 1, 1.5, 2, 3, 5)
            panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            panel.minorticks_off()
            panel.grid(axis="y", color="0.9")
            panel.set_yticks(range(len(names)), names)
        handles = panels[0][0].get_legend_handles_labels()
        fig.legend(*handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
        fig.suptitle("Right of the line: slower than mhalib", x=0.01, ha="left")
    plt.close(fig)
    return fig
