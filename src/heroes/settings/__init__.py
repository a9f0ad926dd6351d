"""How a run is described (`config`), every key and default (`sections`), the experiments (`recipes`)."""
