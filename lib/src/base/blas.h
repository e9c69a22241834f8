/*
 * blas.h - matrix products and transposes. blas.c is the only file that includes <cblas.h>.
 */
#ifndef ATTN_BLAS_H
#define ATTN_BLAS_H

#include <stdbool.h>
#include <stddef.h>

enum {
    /* The largest size or row length that BLAS can address, because its ints have 32 bits. */
    BLAS_MAX_DIM = 0x7fffffff,
};

/*
 * Computes C = A B + beta C or, with trans_b, C = A B^T + beta C. The matrices are row-major: A is
 * (m,k) with row length lda; B is (k,n), or (n,k) with trans_b, with row length ldb; C is (m,n)
 * with row length ldc. If beta is 0, the old numbers of C are not used, so they may be NaN. No size
 * or row length exceeds BLAS_MAX_DIM.
 */
void blas_gemm_f32(bool trans_b, size_t m, size_t n, size_t k, const float *a, size_t lda,
                   const float *b, size_t ldb, float beta, float *c, size_t ldc);
void blas_gemm_f64(bool trans_b, size_t m, size_t n, size_t k, const double *a, size_t lda,
                   const double *b, size_t ldb, double beta, double *c, size_t ldc);

/* Computes C = A^T B + beta C, where A is (k,m). */
void blas_gemm_turned_f32(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                          size_t ldb, float beta, float *c, size_t ldc);
void blas_gemm_turned_f64(size_t m, size_t n, size_t k, const double *a, size_t lda,
                          const double *b, size_t ldb, double beta, double *c, size_t ldc);

/* Write the transpose of a (rows, cols) to b (cols, rows). The row lengths are lda and ldb. */
void blas_transpose_f32(size_t rows, size_t cols, const float *a, size_t lda, float *b, size_t ldb);
void blas_transpose_f64(size_t rows, size_t cols, const double *a, size_t lda, double *b,
                        size_t ldb);

#endif
