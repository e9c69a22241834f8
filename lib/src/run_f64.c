/* run_f64.c - the templates for float64. */
typedef double real;
#define REAL(name)   name##_f64
#define REAL_NAME    "float64"
#define REAL_F(name) name
#include "run.inc"
