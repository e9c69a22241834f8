/*
 * blas_core.h - OpenBLAS chooses its kernels when it is loaded, by a table of CPU models. A model
 * that is newer than the table gets kernels from 2004.
 */
#ifndef BLAS_CORE_H
#define BLAS_CORE_H

/* If OpenBLAS fell back although this CPU has AVX2 or AVX-512, and OPENBLAS_CORETYPE is not set:
 * sets it and executes this program anew with the same arguments. Returns if there is nothing to
 * mend or it cannot be mended. To be called before any thread or socket exists. */
void blas_core_mend(char *argv[]);

#endif
