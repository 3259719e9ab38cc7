"""Controller: slurmctld, its Services, and the configuration that the whole cluster runs on."""
