"""Parts of a model: cut out and laid back (`cuts`), composed from factors (`compose`), chosen by block
(`blocks`), in few bits.
"""
