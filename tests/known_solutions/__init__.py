"""Known solutions of the exercises, one module each: wrong ones with their diagnosis, right ones.

Each module has
    WRONG   step -> {fault: words its diagnosis must hold}; faults of one step exclude each other
    build   (*faults) -> the exercise written with these faults
    SAME    groups of faults that may share a diagnosis, because no behaviour tells them apart
    RIGHT   other right ways to write it
The faults are written independently of the slips in the catalogue.
"""
