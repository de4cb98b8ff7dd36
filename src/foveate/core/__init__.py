"""What everything stands on: errors, images, coordinates, the channel table, files written whole or not at all."""
