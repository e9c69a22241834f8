// kernel.cu writes kernel.safetensors for a kernel in CUDA: nvcc kernel.cu -o kernel && ./kernel
#include "save.h"
#include <cuda_runtime.h>
#include <math.h>

#define N             3
#define M             5
#define D             4
#define SIZE(numbers) ((numbers) * sizeof(double))

__device__ double dot(const double *a, const double *b) {
    double sum = 0;
    for (int c = 0; c < D; c++)
        sum += a[c] * b[c];
    return sum;
}

// Put your kernel in the place of this one, which has one thread.
__global__ void attention(const double *Q, const double *K, const double *V, const double *dO,
                          double *O, double *lse, double *dQ, double *dK, double *dV) {
    const double scale = 1 / sqrt((double)D);
    for (int i = 0; i < N; i++, Q += D, dO += D, O += D, dQ += D) {
        double sum = 0, mean = 0;
        for (int j = 0; j < M; j++)
            sum += exp(scale * dot(Q, K + j * D));
        lse[i] = log(sum);
        for (int j = 0; j < M; j++) {
            double weight = exp(scale * dot(Q, K + j * D) - lse[i]);
            mean += weight * dot(dO, V + j * D);
            for (int c = 0; c < D; c++)
                O[c] += weight * V[j * D + c], dV[j * D + c] += weight * dO[c];
        }
        for (int j = 0; j < M; j++) {
            double weight = exp(scale * dot(Q, K + j * D) - lse[i]);
            double change = scale * weight * (dot(dO, V + j * D) - mean);
            for (int c = 0; c < D; c++)
                dQ[c] += change * K[j * D + c], dK[j * D + c] += change * Q[c];
        }
    }
}

// Managed memory is for host and device. If your kernel has other memory, copy its results with
// cudaMemcpy().
static double *array(int count, double amplitude) {
    double *numbers;
    if (cudaMallocManaged(&numbers, SIZE(count)) != cudaSuccess)
        return NULL;
    for (int i = 0; i < count; i++)
        numbers[i] = amplitude * sin(i + count);
    return numbers;
}

int main() {
    double *Q = array(N * D, 1), *K = array(M * D, 2), *V = array(M * D, 3), *dO = array(N * D, 4);
    double *O = array(N * D, 0), *lse = array(N, 0);
    double *dQ = array(N * D, 0), *dK = array(M * D, 0), *dV = array(M * D, 0);
    attention<<<1, 1>>>(Q, K, V, dO, O, lse, dQ, dK, dV);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 1;

    const struct tensor tensors[] = {
        {"Q", "F64", "3, 4", Q, SIZE(N * D)},
        {"K", "F64", "5, 4", K, SIZE(M * D)},
        {"V", "F64", "5, 4", V, SIZE(M * D)},
        {"grad_output", "F64", "3, 4", dO, SIZE(N * D)},
        {"expected.output", "F64", "3, 4", O, SIZE(N * D)},
        {"expected.lse", "F64", "3", lse, SIZE(N)},
        {"expected.grad_Q", "F64", "3, 4", dQ, SIZE(N * D)},
        {"expected.grad_K", "F64", "5, 4", dK, SIZE(M * D)},
        {"expected.grad_V", "F64", "5, 4", dV, SIZE(M * D)},
    };
    return save("kernel.safetensors", OPTIONS, tensors, sizeof tensors / sizeof tensors[0]) != 0;
}
