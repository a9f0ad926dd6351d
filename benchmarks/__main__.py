"""Run one benchmark, or all of them one after the other."""

from __future__ import annotations

import argparse
import importlib

ALL = {
    "limit": "client-steps per second against a bare PyTorch loop",
    "precision": "the same in float32 and bfloat16, dense and composed, against bare loops of either",
    "peers": "the same FedAvg job on heroes, Flower and pfl",
    "together": "steps of several clients in one call against one client after the other",
    "composition": "a step of the composed model against the dense one of the same width",
    "scale": "a hundred to a million clients: seconds a round and memory",
    "assignment": "how long the server takes to decide who trains what",
    "waiting": "how long clients of Heroes wait, how wide and how long they train, by planning alone",
    "engines": "what carrying tasks costs on every engine, in seconds and bytes",
    "reliability": "what drop-out and hostile clients cost in accuracy, with and without defences",
    "soak": "two thousand rounds on bad days: memory, handles, processes",
}


def main() -> None:
    lines = [f"  {name:<12} {about}" for name, about in ALL.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="\n".join(["Measure. Without a name, everything is measured in turn:", "", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", choices=[*ALL, []], help="what to measure", metavar="NAME")
    parser.add_argument(
        "--quick", action="store_true", help="few turns, to see that it runs; the figures mean little"
    )
    parser.add_argument("--job", choices=["overhead", "compute"], help="one of the jobs of peers alone")
    parser.add_argument("--tools", help="of peers, with commas between: heroes, flower, pfl, bare")
    chosen = parser.parse_args()
    if (chosen.job or chosen.tools) and chosen.name != ["peers"]:
        parser.error("--job and --tools are for peers alone")
    for name in chosen.name or ALL:
        of_peers = {"job": chosen.job} if chosen.job else {}
        of_peers |= {"tools": chosen.tools.split(",")} if chosen.tools else {}
        importlib.import_module(f"benchmarks.{name}").main(quick=chosen.quick, **of_peers)


if __name__ == "__main__":
    main()
