/*
 * blas_setup.h - OpenBLAS decides two things when it is loaded, before main: its kernels, by a
 * table of CPU models in which a newer model gets kernels from 2004; and how many threads it
 * starts, which the daemon has no use for and which would take signals away from it.
 */
#ifndef BLAS_SETUP_H
#define BLAS_SETUP_H

/* Sees to it that OpenBLAS has no threads and kernels that fit the CPU, unless OPENBLAS_CORETYPE
 * is set: by setting its environment variables and executing this program anew with the same
 * arguments. Returns if there is nothing to mend. To be called before any thread or socket exists.
 * */
void blas_prepare(char *argv[]);

#endif
