"""The sections of a configuration: every key with its default, its range and its meaning."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from heroes.fields import NotNegative, Positive, Section, Share, Whole


class FederationConfig(Section):
    """Who takes part, and when it is over: whichever limit comes first."""

    clients: Whole = 40
    """number of clients"""
    cohort: Whole = 10
    """clients that take part in each round"""
    rounds: Whole = 40
    """stop after this many rounds"""
    time_budget: Positive | None = None
    """stop after this many seconds of the clock"""
    traffic_budget: Positive | None = None
    """stop after this many megabytes, both ways"""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """stop when the mean of the complete model's last three test accuracies reaches this (0 to 1)"""
    target: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """stop when the mean of the last three tests by the main metric is at this or better"""
    target_loss: Positive | None = None
    """stop when the clients' mean training loss falls to this"""
    patience: Whole | None = None
    """stop when this many tests in a row were no better, by the main metric, than the best before them"""
    sampler: str = "uniform"
    """who takes part in a round: uniform is anyone, oort those with a high loss and short times"""

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if self.target is not None and self.target_accuracy is not None:
            raise ValueError(
                f"target is {self.target:g} and target_accuracy is {self.target_accuracy:g}; set one of them"
            )
        return self

    @model_validator(mode="after")
    def _cohort_fits(self) -> Self:
        if self.cohort > self.clients:
            raise ValueError(
                f"cohort is {self.cohort} but there are only {self.clients} clients; use a cohort of at most "
                f"{self.clients}"
            )
        return self


LEVELS = {
    "gamma": "gamma",
    "gamma_all": "gamma",
    "by_device": "gamma",
    "dirichlet": "alpha",
    "missing": "phi",
    "classes": "classes_per_client",
    "shards": "shards",
}
"""the key of [data] that says how uneven a partition is"""


class DataConfig(Section):
    """What the clients learn from."""

    name: str = "digits"
    """the data set"""
    partition: str = "gamma"
    """how examples are shared out over clients"""
    gamma: Annotated[float, Field(ge=0, le=100)] = 40.0
    """for partitions gamma, gamma_all and by_device: percent of a client's examples from its main class"""
    alpha: Positive = 0.5
    """for partition dirichlet: concentration; smaller is less even"""
    phi: Annotated[int, Field(ge=0)] = 40
    """for partition missing: how many classes each client lacks"""
    classes_per_client: Whole = 2
    """for partition classes: how many classes each client has"""
    shards: Whole = 2
    """for partition shards: how many shards of examples sorted by class each client gets"""
    sizes: Literal["equal", "lognormal", "power"] = "equal"
    """for partitions iid, dirichlet and classes: how much clients have, by data.skew"""
    skew: Positive = 1.0
    """lognormal: standard deviation of the logarithm of a size; power: the n-th largest is n^skew smaller"""
    examples_per_client: Whole | None = None
    """how many each client draws from all examples, in common with others; none: each goes to one client"""
    directory: str | None = None
    """where data sets lie, one folder each; none is $HEROES_DATA, else the user's data folder"""
    source: str | None = None
    """the file or folder of this data set, when it does not lie in the directory"""
    test: str | None = None
    """images, table, text: the file or folder to test on; none is what lies beside, else a test_share"""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """images, table, text, femnist: the share of the examples to test on, where there is no test set"""
    target: str | None = None
    """table, text: the column to predict; none is label for text"""
    targets: Literal["auto", "classes", "numbers"] = "auto"
    """table, text: what the target is; auto is numbers with objective mean_squared_error, else classes"""
    owner: str | None = None
    """table, text: the column that says who made each row, for partition natural"""
    categories: tuple[str, ...] = ()
    """table: columns to take as words though they look like numbers"""
    ignore: tuple[str, ...] = ()
    """table: columns to leave out"""
    text: str = "text"
    """text: the column with the texts"""
    length: Annotated[int, Field(ge=8, le=65536)] = 256
    """text: so many bytes of every text are read"""
    augment: bool = True
    """cifar10, cifar100, images, imagenet100: flip and crop training images"""
    size: Annotated[int, Field(ge=8, le=1024)] = 144
    """images, imagenet100: images are resized to size x size"""
    classes: tuple[str, ...] = ()
    """images, imagenet100: the class folders to take; an empty list is all, or the first 100 by name"""
    writers: str | None = None
    """mnist: an .npz file with the writer of every training digit, for partition natural"""
    minimum_windows: Whole = 1
    """shakespeare: roles with fewer windows are left out"""
    roles: Whole | None = None
    """shakespeare: keep this many roles, drawn by the seed"""
    test_limit: Whole | None = None
    """test on this many examples, drawn by the seed"""
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """hold this share of the training examples out and test on them, not on the test set; for tuning"""


class ModelConfig(Section):
    """What is trained."""

    name: str = "digits_cnn"
    """the model"""
    max_width: Annotated[int, Field(ge=1, le=64)] = 4
    """P: the width of the complete model; 1 means that every client trains all of it"""
    rank_ratio: Positive = 1.0
    """rank of a basis, relative to the layer's outputs at width 1"""
    norm: Literal["group", "batch", "none"] = "group"
    """normalisation: one group per channel group, over the batch (for tests gathered once), or none"""
    small_images: bool = False
    """resnet18: a 3x3 stem without pooling, for images below about 100 pixels"""
    cell: Literal["rnn", "lstm", "gru"] = "rnn"
    """char_rnn: the recurrent layer"""


class TrainingConfig(Section):
    """How clients train."""

    batch_size: Whole = 16
    """examples in a mini-batch"""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """how clients move their parameters; the clock charges the FLOPs of the gradient, the same for both"""
    learning_rate: Positive = 0.1
    """step size of the first round"""
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """factor on the step size after every round"""
    learning_rate_floor: NotNegative = 0.0
    """the step size never falls below this"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """of sgd, and beta1 of adamw; starts from zero in every round"""
    weight_decay: NotNegative = 0.0
    """L2 penalty of sgd; decay of adamw beside the gradient"""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """adamw: how slowly the mean of squared gradients forgets; it starts from zero in every round"""
    epsilon: Positive = 1e-8
    """adamw: added to the root of that mean"""
    clip: Positive | None = 2.0
    """largest norm of a gradient; "none" for no limit"""
    regulariser: NotNegative = 0.0
    """weight of the orthogonality penalty on every basis"""
    train_in: Literal["factors", "weights"] = "factors"
    """what the optimiser moves: basis and coefficient, or the composed weights, decomposed afterwards"""
    probes: Annotated[int, Field(ge=0, le=64)] = 2
    """batches on which clients estimate L, sigma^2 and G^2, twice a round; at least 2, or 0 for none"""
    probe_every: Whole = 5
    """rounds from one estimate to the next; the clock charges for each"""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """where tensors live while training"""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """in what models are computed, in training and in tests; weights, momenta, sums and messages are float32
    all the same; auto is bfloat16 where the processor has it and the model is large enough to gain, and a run
    keeps what that became
    """

    @model_validator(mode="after")
    def _variance_needs_two(self) -> Self:
        if self.probes == 1:
            raise ValueError(
                "probes is 1 but a variance needs at least 2 batches; use 0 (no estimates) or 2 and more"
            )
        return self


_SUITS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cross_entropy": (("accuracy",), ("f1", "perplexity", "loss")),
    "binary_cross_entropy": (("accuracy",), ("f1", "loss")),
    "mean_squared_error": (("rmse", "mae"), ("loss",)),
    "next_token": (("accuracy", "perplexity"), ("f1", "loss")),
    "own": (("loss",), ("accuracy", "f1", "rmse", "mae")),
}
BUILT_IN_METRICS = frozenset(name for usual, others in _SUITS.values() for name in usual + others)


class ObjectiveConfig(Section):
    """What clients minimise, and what is measured of the model."""

    name: Literal["cross_entropy", "binary_cross_entropy", "mean_squared_error", "next_token", "own"] = (
        "cross_entropy"
    )
    """the loss; own is one given by heroes.run(..., loss=...)"""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """cross_entropy, next_token: how much of a target is spread over all classes, in training only"""
    metrics: tuple[str, ...] = ()
    """what is measured over the whole test set, the main one first, from accuracy, f1, rmse, mae, perplexity,
    loss and own ones; an empty list is what suits the loss
    """
    proximal: NotNegative = 0.0
    """mu of FedProx: mu / 2 times the squared distance from the received tensors is added; 0 is off"""

    @property
    def measured(self) -> tuple[str, ...]:
        """The metrics by name, the main one first."""
        return tuple(dict.fromkeys(self.metrics)) or _SUITS[self.name][0]

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        usual, others = _SUITS[self.name]
        if self.label_smoothing > 0 and self.name not in ("cross_entropy", "next_token"):
            raise ValueError(
                f"label_smoothing is {self.label_smoothing:g} but name is {self.name!r}, which has no labels "
                "to smooth; use 0"
            )
        for metric in self.metrics:
            if metric in BUILT_IN_METRICS and metric not in usual + others:
                fitting = ", ".join(usual + others)
                raise ValueError(f"metrics has {metric!r}, which does not fit {self.name!r}; use {fitting}")
        return self


class ExchangeConfig(Section):
    """How tensors travel, for any strategy."""

    up_bits: Literal[32, 16, 8, 6, 4, 2] = 32
    """bits of a value on its way up; below 32 differences travel, rounded at random so that the mean is right
    """
    down_bits: Literal[32, 16, 8, 6, 4] = 32
    """bits of a value on its way down, rounded to nearest"""
    error_feedback: bool = False
    """whether a client adds what rounding and sparsity left out to what it sends next, rounded to nearest"""
    sparsity: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """share of a change's values that does not travel up, tensor by tensor the smallest; best with
    error_feedback
    """


class ServerConfig(Section):
    """What the server does about clients that are late or missing."""

    deadline: Positive | None = None
    """seconds after which a round is closed with whoever is in"""
    deadline_factor: Positive | None = None
    """the same as a multiple of the planned length of the round; the earlier of the two counts"""
    at_least: Annotated[int, Field(ge=0)] = 1
    """updates that a round needs; with fewer it is begun again with fresh clients"""
    attempts: Whole = 5
    """how often a round may be begun before the run stops with an error"""
    oversample: Annotated[float, Field(ge=1, le=100)] = 1.0
    """ask so many times the cohort and take the updates that are in first"""


class OptimiserConfig(Section):
    """What the server makes of a round's mean change, value by value, where somebody trained."""

    name: Literal["none", "momentum", "adam", "yogi"] = "none"
    """none adds the change to the model; momentum: m = momentum * m + change, and the model moves by rate *
    m; adam and yogi: it moves by rate * m / (sqrt(v) + epsilon), corrected for the first rounds
    """
    rate: Positive | Literal["auto"] = "auto"
    """how far the server steps; auto is 1 for momentum, 0.01 for adam and yogi"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """how much of m stays from round to round (beta1); with 0.9, momentum's steps grow to ten changes"""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """adam, yogi: how much of v, the mean squared change, stays from round to round"""
    epsilon: Positive = 1e-3
    """adam, yogi: what is added to sqrt(v); larger values adapt less"""


class RobustConfig(Section):
    """How the server defends the model against updates that are well-formed and wrong."""

    clip: Positive | Literal["auto"] | None = None
    """largest norm of a client's change; auto is the median of the round; none is no limit"""
    combine: Literal["mean", "median", "trimmed_mean"] = "mean"
    """how updates become one, value by value, over the clients that hold it"""
    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    """trimmed_mean: the share of the lowest and of the highest values that is left out"""
    guard: bool = False
    """refuse updates that are much larger than the others' or point away from their median"""
    guard_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3.0
    """guard: how many times the median size an update may have"""


class PrivacyConfig(Section):
    """Differential privacy of a client's whole contribution, as the server publishes its models."""

    noise: NotNegative = 0.0
    """deviation of the Gaussian noise on the sum of changes, relative to clip; 0 is no privacy"""
    clip: Positive = 1.0
    """largest norm of a client's change"""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """the chance that the promise may fail, at which epsilon is reported; well below 1 / clients"""
    source: Literal["seed", "system"] = "seed"
    """where noise and the draw of clients come from: the seed, which repeats a study, whose epsilon is what a
    run with secret draws would spend; or the system, which nobody can predict
    """


class EvaluationConfig(Section):
    """When and how the model is tested."""

    every: Whole = 1
    """test the complete model every so many rounds"""
    sample: Whole | None = None
    """test on this many test examples during the run, drawn by the seed, and on all of them in the end; none:
    always on all
    """
    batch_size: Whole = 500
    """examples at a time"""
    every_width: bool = True
    """at the end, also test every narrower width"""
    average: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """test and hand out a moving average of the global model: this times the average before, and the rest the
    new model, where somebody trained; 0 is the global model itself
    """
    lookback: Share = 1.0
    """how old that average may be in the mean, as a share of the rounds so far: 0.1 keeps a run of few rounds
    from being tested on models of long ago; 1 leaves it to average alone
    """


class EngineConfig(Section):
    """How tasks reach clients."""

    name: Literal["processes", "in_process", "mpi", "flower"] = "processes"
    """where clients train: in worker processes, one after the other, on MPI ranks or on Flower's nodes"""
    workers: Annotated[int, Field(ge=0)] = 0
    """processes, flower: how many workers; 0 is one for each core, or for each GPU that is used"""
    devices: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """processes, with CUDA: numbers of the GPUs over which workers are shared out; an empty list is all"""
    start: Literal["auto", "fork", "spawn"] = "auto"
    """processes: how workers start; spawn needs an importable model; auto is fork on Linux with a CPU"""
    task_seconds: Positive = 600.0
    """real seconds after which a client is given up (processes, mpi), or a silent round (flower)"""
    wait_seconds: Positive = 300.0
    """real seconds for which the server waits for nodes when there are too few (flower), or for a word of a
    silent rank (mpi), before it ends the run
    """
    clock: Literal["virtual", "wall"] = "virtual"
    """flower: virtual time, computed from FLOPs, bytes and the fleet; or wall time, with measured speeds"""
    model_out: str | None = None
    """mpi: the file to which every rank writes its final model; {rank} is replaced; none is nowhere"""
    model_width: Whole | None = None
    """mpi: the width of that model; none is $HEROES_WIDTH on that rank, else the complete model"""


class OwnConfig(Section):
    """Parts of your own, from a file; `--own` names it."""

    file: str | None = None
    """a Python file with any of build(width), data(), classes, loss, metrics, strategy and sampler, which
    take the place of the parts that are named here
    """
    digest: str | None = None
    """SHA-256 of that file when the run began: it goes on with the same file only, or with one that is named
    again
    """


class CheckpointConfig(Section):
    """Where a run can go on from."""

    every: Annotated[int, Field(ge=0)] = 1
    """write a checkpoint after every so many rounds, and at the end; 0 is never"""


class TrackingConfig(Section):
    """Who hears of every round, besides the run folder."""

    trackers: tuple[str, ...] = ()
    """trackers by name: csv, live, bar, tensorboard, mlflow, wandb, or those of other packages"""
