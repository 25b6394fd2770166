"""How a run's command is executed on its host: directly (`process`), or in a container of an engine."""
