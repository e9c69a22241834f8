/* battery.c runs a kernel in C over the battery of cases: cc battery.c -lm -o battery && ./battery
 * A kernel in CUDA takes its place in the same way: nvcc -x cu battery.c -o battery && ./battery */
#include "battery.h"

/* The place of row i of head h of batch item b, in columns: (batch, heads, rows) or, with sequences,
 * (rows, heads). */
static size_t place(const struct problem *p, int b, int heads, int h, int rows, int i) {
    return (size_t)(p->sequences ? i * heads + h : (b * heads + h) * rows + i);
}

/* The key at which query i of batch item b stands. */
static int position(const struct problem *p, int b, int i) {
    return p->causal == 2 ? i + (p->lengths ? p->lengths[b] : p->m) - p->n : i;
}

static int sees(const struct problem *p, int b, int i, int j) {
    int length = p->lengths ? p->lengths[b] : p->m;
    if (p->mask && !p->mask[i * p->m + j])
        return 0;
    for (int s = 0; p->sequences && s <= p->sequence_count; s++)
        if ((i < p->sequences[s]) != (j < p->sequences[s]))
            return 0; /* one is before, and one behind the begin of a sequence */
    int at = position(p, b, i);
    if (p->windowed && ((p->left >= 0 && j < at - p->left) || (p->right >= 0 && j > at + p->right)))
        return 0;
    return j < length && (!p->causal || j <= at);
}

/* Put your kernel in the place of this one. It computes in double, and rounds only its results. */
static const char *attention(const struct problem *p) {
    double *w, *grad_Q, *grad_K, *grad_V;
    if (p->update)
        return "it is for linear attention";
    if (p->rotary)
        return "the kernel takes no rotary";
    size_t q = (size_t)(p->batch * p->heads * p->n), k = (size_t)(p->batch * p->kv_heads * p->m);
    w = (double *)malloc((size_t)p->m * sizeof(double));
    grad_Q = (double *)calloc(q * (size_t)p->d, sizeof(double));
    grad_K = (double *)calloc(k * (size_t)p->d, sizeof(double));
    grad_V = (double *)calloc(k * (size_t)p->d_v, sizeof(double));
    if (!w || !grad_Q || !grad_K || !grad_V)
        exit(2);
    for (int row = 0; row < p->batch * p->heads * p->n; row++) {
        int i = row % p->n, h = row / p->n % p->heads, b = row / p->n / p->heads;
        int kv = h / (p->heads / p->kv_heads);
        size_t at = place(p, b, p->heads, h, p->n, i);
        const float *Q = p->Q + at * (size_t)p->d, *dO = p->grad_output + at * (size_t)p->d_v;
        double top = p->sink ? p->sink[h] : -INFINITY, sum = 0, delta = 0;
        for (int j = 0; j < p->m; j++) {
            const float *K = p->K + place(p, b, p->kv_heads, kv, p->m, j) * (size_t)p->d;
            double dot = 0;
            w[j] = -INFINITY;
            if (!sees(p, b, i, j))
                continue;
            for (int c = 0; c < p->d; c++)
                dot += (double)Q[c] * K[c];
            w[j] = p->softcap ? p->softcap * tanh(p->scale * dot / p->softcap) : p->scale * dot;
            if (p->bias)
                w[j] += p->bias[(h * p->n + i) * p->m + j];
            if (p->alibi)
                w[j] -= p->alibi[h] * abs(position(p, b, i) - j);
            top = w[j] > top ? w[j] : top;
        }
        for (int j = 0; j < p->m; j++)
            sum += w[j] > -INFINITY ? exp(w[j] - top) : 0;
        sum += p->sink ? exp(p->sink[h] - top) : 0;
        double lse = sum > 0 ? top + log(sum) : -INFINITY;
        p->lse[p->sequences ? h * p->n + i : row] = (float)lse;

        for (int c = 0; c < p->d_v; c++) {
            double o = 0;
            for (int j = 0; j < p->m; j++)
                if (w[j] > -INFINITY)
                    o += exp(w[j] - lse) *
                         p->V[place(p, b, p->kv_heads, kv, p->m, j) * (size_t)p->d_v + (size_t)c];
            p->output[at * (size_t)p->d_v + (size_t)c] = (float)o;
            delta += o * dO[c];
        }
        for (int j = 0; j < p->m; j++) {
            size_t key = place(p, b, p->kv_heads, kv, p->m, j);
            double weight = exp(w[j] - lse), change = 0, score = 0;
            if (w[j] == -INFINITY)
                continue;
            for (int c = 0; c < p->d_v; c++) {
                change += (double)dO[c] * p->V[key * (size_t)p->d_v + (size_t)c];
                grad_V[key * (size_t)p->d_v + (size_t)c] += weight * dO[c];
            }
            change = p->scale * weight * (change - delta);
            if (p->softcap) {
                for (int c = 0; c < p->d; c++)
                    score += (double)Q[c] * p->K[key * (size_t)p->d + (size_t)c];
                change /= pow(cosh(p->scale * score / p->softcap), 2);
            }
            for (int c = 0; c < p->d; c++) {
                grad_Q[at * (size_t)p->d + (size_t)c] +=
                    change * p->K[key * (size_t)p->d + (size_t)c];
                grad_K[key * (size_t)p->d + (size_t)c] += change * Q[c];
            }
        }
    }
    for (size_t x = 0; x < q * (size_t)p->d; x++)
        p->grad_Q[x] = (float)grad_Q[x];
    for (size_t x = 0; x < k * (size_t)p->d; x++)
        p->grad_K[x] = (float)grad_K[x];
    for (size_t x = 0; x < k * (size_t)p->d_v; x++)
        p->grad_V[x] = (float)grad_V[x];
    free(w), free(grad_Q), free(grad_K), free(grad_V);
    return NULL;
}

int main(int argc, char **argv) {
    return battery(argc, argv, attention, "F32", "output lse grad_Q grad_K grad_V");
}
