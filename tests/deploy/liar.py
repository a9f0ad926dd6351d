"""An app in which node 1 answers as client 0: with its number, its round and whatever nonce it has."""

import json

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from heroes import flower_app

server_app = flower_app.server_app
_honest = flower_app.client_app
client_app = ClientApp()


@client_app.query()
def introduce(message: Message, context: Context) -> Message:
    return _honest(message, context)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    reply = _honest(message, context)
    if int(context.node_config["partition-id"]) == 1:
        record = reply.content.config_records["heroes"]
        values = json.loads(str(record["values"])) | {"client": 0}
        reply.content["heroes"] = ConfigRecord({**record, "values": json.dumps(values)})
    return reply
