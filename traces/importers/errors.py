"""What is raised for a file that cannot be imported."""


class ImportFault(ValueError):
    """A clear message for the user: the file and line, what was found, what is allowed."""
