// The tables that several commands print.
#ifndef STRATA_CLI_TABLES_H_
#define STRATA_CLI_TABLES_H_

#include <google/protobuf/repeated_ptr_field.h>

#include <iosfwd>
#include <string>

namespace strata::v1 {
class KvUse;
class Model;
class Node;
class Plan;
class PredictedDrafts;
class Scheduling;
class Session;
}  // namespace strata::v1

namespace strata::cli {

void PrintNodes(const google::protobuf::RepeatedPtrField<v1::Node>& nodes,
                const std::string& indent, std::ostream* out);
void PrintModels(const google::protobuf::RepeatedPtrField<v1::Model>& models,
                 const std::string& indent, std::ostream* out);
// Whether tokens were drafted for any of them; and of one "accepted/drafted".
bool AnyDrafts(const google::protobuf::RepeatedPtrField<v1::Session>& sessions);
std::string DraftsOf(const v1::Session& session);
void PrintSessions(const google::protobuf::RepeatedPtrField<v1::Session>& sessions,
                   const std::string& indent, std::ostream* out);
void PrintKv(const google::protobuf::RepeatedPtrField<v1::KvUse>& uses, const std::string& indent,
             std::ostream* out);
// What the scheduler goes by, as a line.
std::string SchedulingText(const v1::Scheduling& scheduling);
// Stages, then what limits and why; and what drafts do, where that was predicted.
void PrintPlan(const v1::Plan& plan, std::ostream* out);
void PrintPlan(const v1::Plan& plan,
               const google::protobuf::RepeatedPtrField<v1::PredictedDrafts>& drafts,
               std::ostream* out);
// "a (layers 0-3), b (layers 4-7)".
std::string Placement(const v1::Plan& plan);
// "layers 0-3", "layer 4".
std::string Layers(uint32_t first, uint32_t last);

// What a node computes on: "cpu/avx512", "cuda/NVIDIA H200". And how fast it reads its memory and
// computes, as measured; "-": not known.
std::string DeviceText(const v1::Node& node);
std::string ReadsText(const v1::Node& node);
std::string ComputesText(const v1::Node& node);

}  // namespace strata::cli

#endif  // STRATA_CLI_TABLES_H_
