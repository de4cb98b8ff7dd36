"""Pictures as values: heat map, kept tokens, channel sheet, contact sheet."""
