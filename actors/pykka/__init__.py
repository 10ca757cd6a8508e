"""The Pykka interface of workers: inbox, references and futures."""
