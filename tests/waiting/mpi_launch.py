"""How tests start MPI jobs: Open MPI without questions, and a small federation."""

QUIET = {  # Open MPI without questions, in a container and on few cores
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_smsc": "^cma",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMP_NUM_THREADS": "1",
}
SMALL = {"federation.clients": 12, "federation.cohort": 4, "training.probes": 0, "evaluation.batch_size": 100}
SETTINGS = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
