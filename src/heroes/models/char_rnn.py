"""A character network: embedding, recurrent layer, one linear output that predicts the next character."""

from __future__ import annotations

from torch import Tensor, nn

CELLS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def build(
    width: int,
    max_width: int = 4,
    classes: int = 80,
    cell: str = "rnn",
    layers: int = 1,
    vocabulary: int | None = None,
) -> nn.Module:
    """Embedding and hidden size of 512 at full width; `cell` is rnn (tanh), lstm or gru."""
    hidden = max(1, round(512 / max_width)) * width
    return CharRNN(hidden, classes, cell, layers, vocabulary or classes)


class CharRNN(nn.Module):
    """Reads a window of characters (batch, time) and scores the next one, or the class of the text."""

    def __init__(self, hidden: int, classes: int, cell: str, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.recurrent = CELLS[cell](hidden, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, classes)

    def forward(self, characters: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(characters))
        scores: Tensor = self.output(states[:, -1])
        return scores
