// Memory, disks, certificates and drivers of this machine.
#ifndef STRATA_COMMON_EXAMINATION_MACHINE_FACTS_H_
#define STRATA_COMMON_EXAMINATION_MACHINE_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "strata/v1/diagnosis.pb.h"

namespace strata {

// The same for all processes of one machine since it started; "" where it cannot be told. Nothing
// can be learnt from it.
std::string MachineId(const std::string& root);

v1::MemoryFacts LookAtMemory(const std::string& root, uint64_t promised_bytes);

// Of the disk that `path` is on, or the nearest folder above it that exists. Waits for that disk.
v1::DiskFacts LookAtDisk(const std::string& path);

// Of the folder of --tls-dir; `host`: by which others reach who shows the certificate, "": nobody
// does, or not known.
v1::CertificateFacts LookAtCertificate(const std::string& folder, const std::string& host,
                                       int64_t now_s);

// Kinds of backends for whose devices a driver is loaded.
std::vector<std::string> GpuDrivers(const std::string& root);

}  // namespace strata

#endif  // STRATA_COMMON_EXAMINATION_MACHINE_FACTS_H_
