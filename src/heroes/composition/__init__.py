"""Neural composition: a weight as a shared basis times coefficient blocks. Tensors in, tensors out."""
