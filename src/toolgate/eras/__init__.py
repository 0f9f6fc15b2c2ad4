"""Translation between the canonical call and the bytes of each era. Sans-IO: nothing here waits or sends."""
