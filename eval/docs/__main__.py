"""`python -m veltair.eval.docs`: builds the documentation site from `docs/` and the code.

Run it in the repository's root; it is what `make docs` runs. The pages as MkDocs gets them are in
`build/docs`, the site is in `build/site`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from veltair.eval.children import python
from veltair.eval.docs.site import compose
from veltair.runtime.errors import VeltairError


def main() -> int:
    """Writes the pages and has MkDocs build them; a link to nothing is an error."""
    parser = argparse.ArgumentParser(prog="python -m veltair.eval.docs", description=__doc__)
    parser.add_argument("--pages", type=Path, default=Path("build/docs"), help="folder, replaced")
    options = parser.parse_args()
    try:
        config = compose(Path(), options.pages)
    except (ValueError, VeltairError) as error:
        print(f"docs: {error}", file=sys.stderr)
        return 1
    # The theme's advertisement for another generator isn't about what is built.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "true"}
    # Not --quiet: what isn't logged isn't counted by --strict either.
    command = python("mkdocs", "build", "--strict", "--config-file", str(config))
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
