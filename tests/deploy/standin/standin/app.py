"""The stand-in app. Its `records.jsonl` has the names of heroes' own: round, clients, missing, waiting."""

import json
import time
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Sleep, work, and send back what came."""
    begun = time.monotonic()
    time.sleep(float(message.content["task"]["sleep"]) + float(context.node_config.get("sleep", 0.0)))
    total = sum(n * n for n in range(int(message.content["task"]["work"])))
    client = int(context.node_config["partition-id"])
    answer = MetricRecord({"client": client, "seconds": time.monotonic() - begun, "total": total % 97})
    return Message(RecordDict({"model": message.content["model"], "answer": answer}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Go on after the last round that was written."""
    config = context.run_config
    records = Path(str(config["out"])) / "records.jsonl"
    records.parent.mkdir(parents=True, exist_ok=True)
    done = len(records.read_text().splitlines()) if records.exists() else 0
    wait_for(grid, int(config["nodes"]))
    known: dict[int, int] = {}
    for number in range(done + 1, int(config["rounds"]) + 1):
        line = one_round(grid, number, config, known)
        with records.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"round {number} done", flush=True)


def wait_for(grid: Grid, count: int) -> None:
    """Until so many nodes are online."""
    deadline = time.monotonic() + 120
    while len(list(grid.get_node_ids())) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"fewer than {count} nodes came")
        time.sleep(1)


def one_round(grid: Grid, number: int, config: dict, known: dict[int, int]) -> dict:
    """Ask every node that is online; those that do not answer in time are missing. `known` maps nodes to clients."""
    task = ConfigRecord({"sleep": float(config["sleep"]), "work": int(config["work"]), "round": number})
    asked = sorted(grid.get_node_ids())
    content = RecordDict({"model": ArrayRecord(), "task": task})
    timeout = float(config["timeout"])  # also how long a task is worth doing: a node that comes back must not work off old ones
    messages = [Message(content, node, MessageType.TRAIN, group_id=str(number), ttl=timeout) for node in asked]
    print(f"round {number} asks {len(asked)}", flush=True)
    seconds = {}
    for reply in grid.send_and_receive(messages, timeout=timeout):
        if not reply.has_error():
            node, answer = reply.metadata.src_node_id, reply.content["answer"]
            known[node], seconds[node] = int(answer["client"]), float(answer["seconds"])
    waiting = {node: max(seconds.values()) - one for node, one in seconds.items()}
    return {
        "round": number,
        "waiting": sum(waiting.values()) / max(1, len(waiting)),
        "clients": [{"client": known.get(node, -1), "waiting": waiting.get(node, 0.0)} for node in asked],
        "missing": [{"client": known.get(node, -1)} for node in asked if node not in seconds],
    }
