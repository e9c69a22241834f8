/*
 * blas.h - matrix products and transposes. blas.c is the only file that includes <cblas.h>.
 */
#ifndef ATTN_BLAS_H
#define ATTN_BLAS_H

#include <stdbool.h>
#include <stddef.h>

enum {
    /* The largest dimension or row length that BLAS can address (its ints have 32 bits). */
    BLAS_MAX_DIM = 0x7fffffff,
    /* Products that OpenBLAS's kernels for small matrices take: m n k up to the first; with trans_b
     * also m n up to the second, and k of 32 at least. */
    BLAS_SMALL_PRODUCT = 1000000,
    BLAS_SMALL_TRANSPOSED = 1200,
};

/*
 * C = A B + beta C, or A B^T + beta C with trans_b; all row-major.
 * a: (m,k), row length lda; b: (k,n), or (n,k) with trans_b, row length ldb; c: (m,n), row length
 * ldc. With beta 0, what C held is ignored, NaN included. All dimensions <= BLAS_MAX_DIM.
 */
void blas_gemm_f32(bool trans_b, size_t m, size_t n, size_t k, const float *a, size_t lda,
                   const float *b, size_t ldb, float beta, float *c, size_t ldc);
void blas_gemm_f64(bool trans_b, size_t m, size_t n, size_t k, const double *a, size_t lda,
                   const double *b, size_t ldb, double beta, double *c, size_t ldc);

/* Does this BLAS have these kernels, which multiply in place, at the speed of large products? */
bool blas_has_small(void);

/* b (cols, rows), row length ldb = the transpose of a (rows, cols), row length lda. */
void blas_transpose_f32(size_t rows, size_t cols, const float *a, size_t lda, float *b, size_t ldb);
void blas_transpose_f64(size_t rows, size_t cols, const double *a, size_t lda, double *b,
                        size_t ldb);

#endif
