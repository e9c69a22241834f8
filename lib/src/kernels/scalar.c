/* scalar.c has the row kernels in plain C, for every CPU. */
#include "kernels/kernels.h"

#include <float.h>
#include <math.h>
#include <stdint.h>

/* The products use the vectors of GCC and Clang: of 16 bytes, which every CPU of 64 bits has. */
#define STRIP_ROWS             6
#define PANEL_VECTORS          2

/* SHIFTED uses double, in which the product of two floats is exact. */

#define real                   float
#define REAL_IS_FLOAT          1
#define ROW(name)              name##_f32
#define EXP                    expf
#define REAL_HIGHEST           FLT_MAX
#define SHIFTED(x, scale, max) (float)((double)(x) * (double)(scale) - (double)(max))
#define MAX_EXACT              0x1p29
#define LANES                  4
#define SET(c)                 ((V){c, c, c, c})
#include "scalar.inc"
#undef real
#undef REAL_IS_FLOAT
#undef ROW
#undef EXP
#undef SHIFTED
#undef REAL_HIGHEST
#undef MAX_EXACT
#undef LANES
#undef SET

#define real                   double
#define REAL_IS_FLOAT          0
#define ROW(name)              name##_f64
#define EXP                    exp
#define REAL_HIGHEST           DBL_MAX
#define SHIFTED(x, scale, max) fma(x, scale, -(max))
#define MAX_EXACT              0x1p58
#define LANES                  2
#define SET(c)                 ((V){c, c})
#include "scalar.inc"

static double max_f64(const double *x, size_t n) {
    return largest_f64(x, n, &(bool){false});
}

static void softcap_f64(double *y, size_t n, double softcap) {
    for (size_t i = 0; i < n; i++) {
        y[i] = isfinite(y[i]) ? softcap * tanh(y[i] / softcap) : y[i];
    }
}

static void fence(void) {
    /* No store of these kernels bypasses the caches. */
}

#define TABLE attn_kernels_scalar
#define NAME  "scalar"
#include "table.inc"
