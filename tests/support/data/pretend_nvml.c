/* libnvidia-ml.so.1 without a GPU: plays the recording in $TK_PRETEND_NVML.
 *
 * Lines: `gpu LIMIT_MW USED_MIB TOTAL_MIB MOST_MHZ PID` begins a GPU; PID 0: no process.
 * `at BUSY MEMORY_BUSY POWER_MW MHZ REASONS` is one sample of it; the last one stays.
 * `fail CODE`: nvmlInit_v2 fails. `silent`: it never returns.
 * tk asks for the first part; the second part is what `nvitop -1` of scripts/bench asks besides.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned busy, memory_busy, power, clock; unsigned long long reasons; } sample_t;
typedef struct {
    unsigned limit, most, pid;
    unsigned long long used, total;
    sample_t samples[256];
    int count, at;
} gpu_t;

static gpu_t gpus[8];
static unsigned count;

int nvmlInit_v2(void) {
    char line[256];
    const char *path = getenv("TK_PRETEND_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 9;
    while (fgets(line, sizeof line, file)) {
        gpu_t *gpu = count ? &gpus[count - 1] : NULL;
        int code;
        if (sscanf(line, "fail %d", &code) == 1) return code;
        if (!strncmp(line, "silent", 6)) for (;;) pause();
        if (!strncmp(line, "gpu ", 4) && count < 8) {
            gpu = &gpus[count++];
            sscanf(line, "gpu %u %llu %llu %u %u", &gpu->limit, &gpu->used, &gpu->total,
                   &gpu->most, &gpu->pid);
        } else if (gpu && gpu->count < 256) {
            sample_t *s = &gpu->samples[gpu->count];
            if (sscanf(line, "at %u %u %u %u %llx", &s->busy, &s->memory_busy, &s->power,
                       &s->clock, &s->reasons) == 5)
                gpu->count++;
        }
    }
    fclose(file);
    return 0;
}

static sample_t *now(gpu_t *gpu) { return &gpu->samples[gpu->at]; }

const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "Driver Not Loaded"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, gpu_t **gpu) {
    if (i >= count) return 2;
    *gpu = &gpus[i];
    return 0;
}
int nvmlDeviceGetUUID(gpu_t *gpu, char *text, unsigned size) {
    snprintf(text, size, "GPU-%08d-pretend", (int)(gpu - gpus));
    return 0;
}
int nvmlDeviceGetName(gpu_t *gpu, char *text, unsigned size) {
    (void)gpu;
    snprintf(text, size, "Pretend H100");
    return 0;
}
int nvmlDeviceGetUtilizationRates(gpu_t *gpu, unsigned *rates) {
    rates[0] = now(gpu)->busy;
    rates[1] = now(gpu)->memory_busy;
    return 0;
}
int nvmlDeviceGetPowerUsage(gpu_t *gpu, unsigned *mw) { *mw = now(gpu)->power; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(gpu_t *gpu, unsigned *mw) { *mw = gpu->limit; return 0; }
int nvmlDeviceGetClockInfo(gpu_t *gpu, unsigned kind, unsigned *mhz) {
    (void)kind;
    *mhz = now(gpu)->clock;
    return 0;
}
int nvmlDeviceGetMaxClockInfo(gpu_t *gpu, unsigned kind, unsigned *mhz) {
    (void)kind;
    *mhz = gpu->most;
    return 0;
}
/* The last question of a round: the next one plays the next sample. */
int nvmlDeviceGetCurrentClocksThrottleReasons(gpu_t *gpu, unsigned long long *reasons) {
    *reasons = now(gpu)->reasons;
    if (gpu->at + 1 < gpu->count) gpu->at++;
    return 0;
}
int nvmlDeviceGetMemoryInfo(gpu_t *gpu, unsigned long long *memory) {
    memory[0] = gpu->total << 20;
    memory[1] = (gpu->total - gpu->used) << 20;
    memory[2] = gpu->used << 20;
    return 0;
}
typedef struct { unsigned pid; unsigned long long used; unsigned a, b; } process_t;
int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t *gpu, unsigned *n, process_t *rows) {
    unsigned room = *n;
    *n = gpu->pid ? 1 : 0;
    if (room < *n) return 7; /* insufficient size: n says the room that is needed */
    if (gpu->pid) {
        rows[0].pid = gpu->pid;
        rows[0].used = gpu->used << 20;
    }
    return 0;
}

/* What nvitop asks besides. */
enum { NOT_SUPPORTED = 3 };
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { count = 0; return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "550.54.15");
    return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12040; return 0; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12040; return 0; }
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } pci_t;
int nvmlDeviceGetPciInfo_v3(gpu_t *gpu, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = 1 + (unsigned)(gpu - gpus);
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    return 0;
}
int nvmlDeviceGetTemperature(gpu_t *gpu, unsigned sensor, unsigned *celsius) {
    (void)gpu; (void)sensor;
    *celsius = 40;
    return 0;
}
int nvmlDeviceGetPowerManagementLimit(gpu_t *gpu, unsigned *mw) { *mw = gpu->limit; return 0; }
int nvmlDeviceGetEncoderUtilization(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetDecoderUtilization(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetFanSpeed(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetDisplayActive(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetPersistenceMode(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetPerformanceState(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetTotalEccErrors(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetComputeMode(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetDriverModel(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetProcessUtilization(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetGraphicsRunningProcesses_v3(gpu_t *gpu, unsigned *n, process_t *rows) {
    (void)gpu; (void)rows;
    *n = 0;
    return 0;
}
