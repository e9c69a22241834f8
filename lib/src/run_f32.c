/* run_f32.c - the templates for float32. */
typedef float real;
#define REAL(name)   name##_f32
#define REAL_NAME    "float32"
#define REAL_F(name) name##f
#include "run.inc"
