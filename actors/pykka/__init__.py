"""The parts of workers that make them Pykka actors: inbox, references and futures."""
