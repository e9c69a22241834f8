/* kernel.c writes kernel.safetensors for a kernel in C: cc kernel.c -o kernel && ./kernel */
#include "save.h"

int main(void) {
    /* One query and two keys, and what a kernel made of them. Put your arrays in their place. */
    double Q[] = {1, 1}, K[] = {1, 0, 0, 1}, V[] = {5, 6, 7, 8}, grad_output[] = {1, 2};
    double output[] = {6, 7}, lse[] = {1.400253961746493};
    double grad_Q[] = {-1.060660171779821, 1.060660171779821}, grad_V[] = {0.5, 1, 0.5, 1};
    double grad_K[] = {-1.060660171779821, -1.060660171779821, 1.060660171779821,
                       1.060660171779821};

    const struct tensor tensors[] = {
        {"Q", "F64", "1, 2", Q, sizeof Q},
        {"K", "F64", "2, 2", K, sizeof K},
        {"V", "F64", "2, 2", V, sizeof V},
        {"grad_output", "F64", "1, 2", grad_output, sizeof grad_output},
        {"expected.output", "F64", "1, 2", output, sizeof output},
        {"expected.lse", "F64", "1", lse, sizeof lse},
        {"expected.grad_Q", "F64", "1, 2", grad_Q, sizeof grad_Q},
        {"expected.grad_K", "F64", "2, 2", grad_K, sizeof grad_K},
        {"expected.grad_V", "F64", "2, 2", grad_V, sizeof grad_V},
    };
    return save("kernel.safetensors", OPTIONS, tensors, sizeof tensors / sizeof tensors[0]) != 0;
}
