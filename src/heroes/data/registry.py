"""Where the public data sets are found, and what their files must hash to."""

from __future__ import annotations

from dataclasses import dataclass

from heroes.errors import DataError, did_you_mean


@dataclass(frozen=True)
class PublicFile:
    """A file and the addresses it can be had from; `md5` is None if nobody has published one."""

    name: str
    addresses: tuple[str, ...]
    md5: str | None = None


@dataclass(frozen=True)
class PublicData:
    """A data set: its title, the files to download (perhaps none), and what to do by hand."""

    title: str
    files: tuple[PublicFile, ...] = ()
    by_hand: str = ""


def _idx_files(bases: tuple[str, ...], sums: tuple[str, str, str, str]) -> tuple[PublicFile, ...]:
    names = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    return tuple(
        PublicFile(f"{name}.gz", tuple(f"{base}{name}.gz" for base in bases), md5)
        for name, md5 in zip(names, sums, strict=True)
    )


REGISTRY: dict[str, PublicData] = {
    "cifar10": PublicData(
        "CIFAR-10, 170 MB",
        (
            PublicFile(
                "cifar-10-python.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
                "c58f30108f718f92721af3b95e74349a",
            ),
        ),
    ),
    "cifar100": PublicData(
        "CIFAR-100, 170 MB",
        (
            PublicFile(
                "cifar-100-python.tar.gz",
                ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
                "eb9058c3a382ffc7106e4002c42a8d85",
            ),
        ),
    ),
    "mnist": PublicData(
        "MNIST, 12 MB",
        _idx_files(
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
    ),
    "fashion_mnist": PublicData(
        "Fashion-MNIST, 31 MB",
        _idx_files(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
    ),
    "shakespeare": PublicData(
        "the complete works of Shakespeare, Project Gutenberg #100 of 1994, 2 MB; for personal, "
        "non-commercial use",
        (
            PublicFile(
                "1994-01-100.zip",
                (
                    "https://www.gutenberg.org/files/100/old/1994-01-100.zip",
                    "https://www.gutenberg.org/files/100/old/old/1994-01-100.zip",
                ),
            ),
        ),
    ),
    "femnist": PublicData(
        "LEAF's FEMNIST, handwritten digits and letters by writer",
        by_hand="LEAF (https://github.com/TalwalkarLab/leaf) makes it from NIST's files: in its data/femnist "
        "say ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample, then give the folder data there by --from",
    ),
    "imagenet100": PublicData(
        "a hundred classes of ImageNet, or any images by class",
        by_hand="it has no public address: ask for ImageNet at https://image-net.org, then give the folder "
        "(or an archive of it) that has train/<class>/* and val/<class>/* by --from; Tiny-ImageNet will do",
    ),
}


def public_data(name: str) -> PublicData:
    """The entry of this name, or an error with the nearest one."""
    if name not in REGISTRY:
        raise DataError(f"unknown data set {name!r}: {did_you_mean(name, REGISTRY)}")
    return REGISTRY[name]
