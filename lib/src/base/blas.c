/*
 * blas.c - the only file that knows CBLAS and OpenBLAS. Its callers have checked that every size
 * fits an int of 32 bits. Otherwise BLAS would print a message and leave C as it was.
 */
#include "base/blas.h"

#include <assert.h>
#include <cblas.h>

#include "attention.h"
#include "kernels/kernels.h"

void blas_gemm_f32(bool trans_b, size_t m, size_t n, size_t k, const float *a, size_t lda,
                   const float *b, size_t ldb, float beta, float *c, size_t ldc) {
    assert(m <= BLAS_MAX_DIM && n <= BLAS_MAX_DIM && k <= BLAS_MAX_DIM);
    assert(lda <= BLAS_MAX_DIM && ldb <= BLAS_MAX_DIM && ldc <= BLAS_MAX_DIM);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, (blasint)m,
                (blasint)n, (blasint)k, 1.0f, a, (blasint)lda, b, (blasint)ldb, beta, c,
                (blasint)ldc);
}

void blas_gemm_f64(bool trans_b, size_t m, size_t n, size_t k, const double *a, size_t lda,
                   const double *b, size_t ldb, double beta, double *c, size_t ldc) {
    assert(m <= BLAS_MAX_DIM && n <= BLAS_MAX_DIM && k <= BLAS_MAX_DIM);
    assert(lda <= BLAS_MAX_DIM && ldb <= BLAS_MAX_DIM && ldc <= BLAS_MAX_DIM);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, (blasint)m,
                (blasint)n, (blasint)k, 1.0, a, (blasint)lda, b, (blasint)ldb, beta, c,
                (blasint)ldc);
}

void blas_gemm_turned_f32(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                          size_t ldb, float beta, float *c, size_t ldc) {
    assert(m <= BLAS_MAX_DIM && n <= BLAS_MAX_DIM && k <= BLAS_MAX_DIM);
    assert(lda <= BLAS_MAX_DIM && ldb <= BLAS_MAX_DIM && ldc <= BLAS_MAX_DIM);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1.0f,
                a, (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}

void blas_gemm_turned_f64(size_t m, size_t n, size_t k, const double *a, size_t lda,
                          const double *b, size_t ldb, double beta, double *c, size_t ldc) {
    assert(m <= BLAS_MAX_DIM && n <= BLAS_MAX_DIM && k <= BLAS_MAX_DIM);
    assert(lda <= BLAS_MAX_DIM && ldb <= BLAS_MAX_DIM && ldc <= BLAS_MAX_DIM);
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1.0, a,
                (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}

void blas_transpose_f32(size_t rows, size_t cols, const float *a, size_t lda, float *b,
                        size_t ldb) {
    assert(rows <= BLAS_MAX_DIM && cols <= BLAS_MAX_DIM && lda <= BLAS_MAX_DIM);
    cblas_somatcopy(CblasRowMajor, CblasTrans, (blasint)rows, (blasint)cols, 1.0f, a, (blasint)lda,
                    b, (blasint)ldb);
}

void blas_transpose_f64(size_t rows, size_t cols, const double *a, size_t lda, double *b,
                        size_t ldb) {
    assert(rows <= BLAS_MAX_DIM && cols <= BLAS_MAX_DIM && lda <= BLAS_MAX_DIM);
    cblas_domatcopy(CblasRowMajor, CblasTrans, (blasint)rows, (blasint)cols, 1.0, a, (blasint)lda,
                    b, (blasint)ldb);
}

attn_build_info attn_build(void) {
    attn_build_info build = {
        .version = ATTN_VERSION,
        .blas = openblas_get_config(),
        .blas_core = openblas_get_corename(),
        .kernels = attn_kernels()->name,
        .kernels_refused = attn_kernels_refused(),
    };
    const struct attn_kernels *tables[ATTN_KERNELS_MAX];
    const size_t count = attn_kernels_usable(tables);
    static_assert(sizeof build.usable_kernels / sizeof(char *) == ATTN_KERNELS_MAX + 1,
                  "usable_kernels has room for all tables and NULL");
    for (size_t i = 0; i < count; i++) {
        build.usable_kernels[i] = tables[i]->name;
    }
    return build;
}

void attn_blas_set_threads(int threads) {
    openblas_set_num_threads(threads);
}
