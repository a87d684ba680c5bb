"""Private helpers of the library: files, validation, configuration, plug-ins."""
