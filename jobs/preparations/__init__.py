"""What hosts must have before runs may start there: asked for once a host, whoever needs it."""
