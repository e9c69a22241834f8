/* partition.c - see partition.h. */
#include "partition.h"

#include <math.h>

#include "base/tensor.h"

struct partition partition_units(size_t units, double cost) {
    if (units == 0) {
        return (struct partition){0};
    }
    const double each = cost / (double)units, least = each * (double)units / MOST_TASKS;
    const double work = fmin(fmax(TASK_WORK, least), TASK_MOST), fit = work / fmax(each, 1);
    const size_t some = fit < 1 ? 1 : fit > (double)units ? units : (size_t)fit;
    return (struct partition){units, some, ceil_div(units, some)};
}
