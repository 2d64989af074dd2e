"""Fetch the treebank UD English-EWT (dev and test, 1.8 MB each), to score heads on real sentences.

    python data/fetch_treebank.py treebank
    export MHALIB_UD_DIR=treebank

The first line needs the network and the standard library only; nothing else in the course asks
for it. A file is kept only if its checksum is the one below, and a file of yours is never
overwritten.

Source: https://github.com/UniversalDependencies/UD_English-EWT, by Natalia Silveira, Timothy
Dozat, Sebastian Schuster, Christopher Manning and others. Licence: CC BY-SA 4.0,
https://creativecommons.org/licenses/by-sa/4.0/.
"""

import argparse
import hashlib
import sys
import urllib.request
from pathlib import Path

SOURCE = "https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT"
REVISIONS = ("r2.18", "r2.17", "r2.16", "master")  # the checksums decide which of them is meant
SHA256 = {
    "en_ewt-ud-dev.conllu": "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6",
    "en_ewt-ud-test.conllu": "e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd",
}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the files go; made if it is not there")
    parser.add_argument(
        "--source",
        action="append",
        help="an address that holds the two files, tried instead of the treebank's own",
    )
    options = parser.parse_args(arguments)
    sources = options.source or [f"{SOURCE}/{revision}" for revision in REVISIONS]
    print("UD English-EWT, CC BY-SA 4.0, https://github.com/UniversalDependencies/UD_English-EWT")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in SHA256:
        fetch(name, sources, options.folder)
    print(f"Done. Set the environment variable MHALIB_UD_DIR to {options.folder}")


def fetch(name, sources, folder):
    """Put one file into `folder`, from the first source that holds the right one."""
    target = folder / name
    if target.exists():
        try:
            verify(name, target.read_bytes(), target)
        except ValueError as problem:
            sys.exit(f"{problem}. It is left as it is: name another folder, or move it away.")
        print(f"{target} is there already, and right.")
        return
    reasons = []
    for source in sources:
        address = f"{source}/{name}"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                content = answer.read()
            verify(name, content, address)
        except (OSError, ValueError) as problem:  # URLError and a lost line are kinds of OSError
            reasons.append(f"  {address}: {problem}")
            continue
        part = target.with_name(f"{name}.part")  # so that a broken write never looks like the file
        part.write_bytes(content)
        part.replace(target)
        print(f"{target} fetched from {address}")
        return
    sys.exit("\n".join([f"No source gave {name}. Tried:", *reasons]))


def verify(name, content, where):
    """Refuse anything but the file that the course was measured on.

    Raises:
        ValueError: with both checksums.
    """
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise ValueError(
            f"{where} is not the {name} that the course was measured on: its sha256 is {found}, "
            f"but {SHA256[name]} was expected"
        )


if __name__ == "__main__":
    main()
