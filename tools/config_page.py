"""Prints docs/config.md: every configuration key, from the code."""

from __future__ import annotations

from heroes.config import keys


def page() -> str:
    lines = [
        "# Configuration",
        "",
        "Every key, made from the code by `make docs`. A TOML file holds the keys that differ from the task's recipe;",
        "`--set section.key=value` changes one on the command line; the word `none` unsets a key that may be unset.",
        "The resolved configuration is written to `config.toml` in every run folder.",
    ]
    section = None
    for key, default, text in keys():
        here = key.partition(".")[0] if "." in key else "top"
        if here != section:
            section = here
            lines += [
                "",
                f"## {'Top level' if here == 'top' else f'[{here}]'}",
                "",
                "| key | default | meaning |",
                "|---|---|---|",
            ]
        shown = "none" if default is None else default
        lines.append(f"| `{key}` | `{shown}` | {text.replace('|', '/')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201
