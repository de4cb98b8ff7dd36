"""How the shipped networks and tables were made: `src/foveate/encoders/assets` and `src/foveate/channels/assets`."""
