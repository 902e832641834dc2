"""Model presets and hardware files, for both arms."""
