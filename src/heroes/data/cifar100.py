"""CIFAR-100 from `cifar-100-python`, by its hundred fine classes."""

from __future__ import annotations

from heroes.data import cifar_files
from heroes.data.datasets import DataOptions, Dataset

_NAMES = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly "
    "camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile "
    "cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp "
    "lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree "
    "orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum "
    "rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider "
    "squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train "
    "trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)
KIND = cifar_files.Cifar(
    "CIFAR-100",
    folder="cifar-100-python",
    train=("train",),
    test=("test",),
    labels=b"fine_labels",
    classes=tuple(_NAMES.split()),
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    largest=500_000_000,  # the official files have up to 156 million
)


def load(options: DataOptions) -> Dataset:
    """CIFAR-100: 60,000 photographs of 32x32 in a hundred classes; training images are varied."""
    return cifar_files.load(KIND, "cifar100", options)
