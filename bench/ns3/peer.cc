// SPDX-License-Identifier: GPL-2.0-only
//
// One case in ns-3, for comparison with evenkeel's simulator: N senders, one bottleneck, bulk transfers or a list of flows.
//
//   peer FILE    prints one JSON object
//
// FILE has one setting per line; see README.md for the settings and for what was made equal to evenkeel.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace ns3;

namespace {

struct Flow {
    uint64_t start_us;
    uint32_t sender;
    uint32_t receiver;
    uint64_t bytes; // 0: without end
};

struct Case {
    std::string topology = "star";
    std::string queue = "drop-tail";
    std::string congestion_control = "reno";
    uint32_t senders = 1;
    uint32_t receivers = 1;
    uint64_t rate_mbit = 1000;
    uint64_t edge_rate_mbit = 0; // 0: as rate_mbit
    uint64_t delay_us = 10;
    uint32_t buffer_segments = 100;
    uint32_t ecn_threshold_segments = 0;
    uint64_t rto_min_us = 200000;
    uint32_t initial_window_segments = 10;
    uint32_t delayed_ack_segments = 2;
    uint64_t delayed_ack_max_us = 40000;
    bool hystart = true;
    uint64_t warmup_ms = 0;
    uint64_t duration_ms = 100;
    std::vector<Flow> flows;
};

constexpr uint32_t kSegmentBytes = 1448; // with timestamps, 1500 bytes of IP
// evenkeel counts 38 bytes of Ethernet around an IP packet, a point-to-point device of ns-3 counts 2 (PPP): rates are
// scaled, so that both links carry the same payload.
constexpr double kRateScale = 1502.0 / 1538.0;

[[noreturn]] void Die(const std::string& message) {
    std::cerr << "peer: " << message << "\n";
    std::exit(2);
}

Case Read(const std::string& path) {
    std::ifstream file(path);
    if (!file) {
        Die("cannot open " + path);
    }
    Case c;
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
        std::istringstream words(line.substr(0, line.find('#')));
        std::string key;
        if (!(words >> key)) {
            continue;
        }
        bool ok = true;
        const auto take = [&](auto& value) { ok = ok && static_cast<bool>(words >> value); };
        if (key == "topology") {
            take(c.topology);
            ok = ok && (c.topology == "star" || c.topology == "dumbbell");
        } else if (key == "queue") {
            take(c.queue);
            ok = ok && (c.queue == "drop-tail" || c.queue == "red");
        } else if (key == "congestion_control") {
            take(c.congestion_control);
        } else if (key == "senders") {
            take(c.senders);
        } else if (key == "receivers") {
            take(c.receivers);
        } else if (key == "rate_mbit") {
            take(c.rate_mbit);
        } else if (key == "edge_rate_mbit") {
            take(c.edge_rate_mbit);
        } else if (key == "delay_us") {
            take(c.delay_us);
        } else if (key == "buffer_segments") {
            take(c.buffer_segments);
        } else if (key == "ecn_threshold_segments") {
            take(c.ecn_threshold_segments);
        } else if (key == "rto_min_us") {
            take(c.rto_min_us);
        } else if (key == "initial_window_segments") {
            take(c.initial_window_segments);
        } else if (key == "delayed_ack_segments") {
            take(c.delayed_ack_segments);
        } else if (key == "delayed_ack_max_us") {
            take(c.delayed_ack_max_us);
        } else if (key == "hystart") {
            take(c.hystart);
        } else if (key == "warmup_ms") {
            take(c.warmup_ms);
        } else if (key == "duration_ms") {
            take(c.duration_ms);
        } else if (key == "flow") {
            Flow flow{};
            take(flow.start_us);
            take(flow.sender);
            take(flow.receiver);
            take(flow.bytes);
            ok = ok && flow.sender < c.senders && flow.receiver < c.receivers;
            c.flows.push_back(flow);
        } else {
            ok = false;
        }
        if (!ok) {
            Die(path + ":" + std::to_string(number) + ": " + line);
        }
    }
    if (c.flows.empty()) {
        Die(path + ": no flow");
    }
    if (c.topology == "star" && c.receivers != 1) {
        Die(path + ": a star has one receiver");
    }
    if (c.buffer_segments < 2) {
        Die(path + ": buffer_segments must be 2 and more");
    }
    if (c.queue == "red" && c.ecn_threshold_segments < 2) {
        Die(path + ": queue red needs ecn_threshold_segments of 2 and more");
    }
    return c;
}

void Configure(const Case& c) {
    static const std::map<std::string, std::string> types = {
        {"newreno", "ns3::TcpNewReno"},
        {"reno", "ns3::TcpLinuxReno"},
        {"cubic", "ns3::TcpCubic"},
        {"dctcp", "ns3::TcpDctcp"},
    };
    const auto type = types.find(c.congestion_control);
    if (type == types.end()) {
        Die("congestion_control " + c.congestion_control + ": must be newreno, reno, cubic or dctcp");
    }
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName(type->second)));
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(c.hystart));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kSegmentBytes));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(c.initial_window_segments));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(c.delayed_ack_segments));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MicroSeconds(c.delayed_ack_max_us)));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(1)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 24));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 24));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MicroSeconds(c.rto_min_us)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MicroSeconds(1)));
}

uint64_t Received(const std::vector<Ptr<PacketSink>>& sinks) {
    uint64_t bytes = 0;
    for (const auto& sink : sinks) {
        bytes += sink->GetTotalRx();
    }
    return bytes;
}

struct Completion {
    uint64_t want = 0;
    uint64_t got = 0;
    Time start;
    Time end;
};

} // namespace

int main(int argc, char* argv[]) {
    if (argc != 2) {
        std::cerr << "usage: peer FILE\n";
        return 2;
    }
    const Case c = Read(argv[1]);
    const auto began = std::chrono::steady_clock::now();
    Configure(c);

    const bool star = c.topology == "star";
    NodeContainer left, right, sources, sinks_at;
    left.Create(1);
    sources.Create(c.senders);
    sinks_at.Create(c.receivers);
    if (star) {
        right = left;
    } else {
        right.Create(1);
    }

    InternetStackHelper internet;
    internet.InstallAll();

    const auto rate = [](uint64_t mbit) {
        return DataRateValue(DataRate(static_cast<uint64_t>(mbit * 1e6 * kRateScale)));
    };
    const uint64_t edge_mbit = star || c.edge_rate_mbit == 0 ? c.rate_mbit : c.edge_rate_mbit;
    PointToPointHelper link;
    link.SetChannelAttribute("Delay", TimeValue(MicroSeconds(c.delay_us)));
    // Hosts queue as much as they like; switches do not, other than at the bottleneck.
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("100000p"));
    link.SetDeviceAttribute("DataRate", rate(edge_mbit));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    TrafficControlHelper none;
    const auto connect = [&](Ptr<Node> a, Ptr<Node> b, PointToPointHelper& helper) {
        NetDeviceContainer devices = helper.Install(a, b);
        Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
        addresses.NewNetwork();
        none.Uninstall(devices); // the default queueing discipline, fq_codel
        return std::make_pair(devices, interfaces);
    };
    for (uint32_t i = 0; i < c.senders; ++i) {
        connect(sources.Get(i), left.Get(0), link);
    }
    std::vector<Ipv4Address> to;
    Ptr<NetDevice> bottleneck;
    for (uint32_t i = 0; i < c.receivers; ++i) {
        auto [devices, interfaces] = connect(right.Get(0), sinks_at.Get(i), link);
        to.push_back(interfaces.GetAddress(1));
        bottleneck = devices.Get(0);
    }
    if (!star) {
        link.SetDeviceAttribute("DataRate", rate(c.rate_mbit));
        bottleneck = connect(left.Get(0), right.Get(0), link).first.Get(0);
    }

    // evenkeel's buffers and thresholds count the packets that wait; a queueing discipline does not count the one of them
    // that waits in the device below it: so one less.
    DynamicCast<PointToPointNetDevice>(bottleneck)->GetQueue()->SetMaxSize(QueueSize("1p"));
    const QueueSizeValue limit(QueueSize(QueueSizeUnit::PACKETS, c.buffer_segments - 1));
    TrafficControlHelper queue;
    if (c.queue == "red") {
        const DoubleValue threshold(c.ecn_threshold_segments - 1);
        queue.SetRootQueueDisc("ns3::RedQueueDisc", "UseEcn", BooleanValue(true), "UseHardDrop", BooleanValue(false), "Gentle",
                               BooleanValue(false), "QW", DoubleValue(1.0), "MinTh", threshold, "MaxTh", threshold,
                               "MeanPktSize", UintegerValue(1500), "MaxSize", limit);
    } else {
        queue.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", limit);
    }
    const Ptr<QueueDisc> disc = queue.Install(bottleneck).Get(0);
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    std::vector<Ptr<PacketSink>> sinks;
    std::vector<Completion> completions(c.flows.size());
    bool any_ends = false;
    size_t open = 0;
    for (size_t i = 0; i < c.flows.size(); ++i) {
        const Flow& flow = c.flows[i];
        const uint16_t port = static_cast<uint16_t>(1024 + i);
        PacketSinkHelper sink_helper("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
        ApplicationContainer sink = sink_helper.Install(sinks_at.Get(flow.receiver));
        sink.Start(Seconds(0));
        sinks.push_back(DynamicCast<PacketSink>(sink.Get(0)));
        BulkSendHelper source_helper("ns3::TcpSocketFactory", InetSocketAddress(to[flow.receiver], port));
        source_helper.SetAttribute("MaxBytes", UintegerValue(flow.bytes));
        source_helper.SetAttribute("SendSize", UintegerValue(kSegmentBytes * 10));
        ApplicationContainer source = source_helper.Install(sources.Get(flow.sender));
        source.Start(MicroSeconds(flow.start_us));
        completions[i] = {flow.bytes, 0, MicroSeconds(flow.start_us), Time()};
        if (flow.bytes > 0) {
            any_ends = true;
            ++open;
            Completion* completion = &completions[i];
            sinks.back()->TraceConnectWithoutContext("Rx", Callback<void, Ptr<const Packet>, const Address&>(
                [completion, &open](Ptr<const Packet> packet, const Address&) {
                    completion->got += packet->GetSize();
                    if (completion->got == completion->want) {
                        completion->end = Simulator::Now();
                        if (--open == 0) {
                            Simulator::Stop();
                        }
                    }
                }));
        }
    }

    uint64_t at_warmup = 0;
    Simulator::Schedule(MilliSeconds(c.warmup_ms), [&] { at_warmup = Received(sinks); });
    Simulator::Stop(MilliSeconds(c.warmup_ms + c.duration_ms));
    Simulator::Run();
    const double simulated_s = Simulator::Now().GetSeconds();
    const double measured_s = simulated_s - c.warmup_ms / 1e3;
    const uint64_t all_bytes = Received(sinks);
    const uint64_t drops = disc->GetStats().nTotalDroppedPackets;
    const uint64_t marks = disc->GetStats().nTotalMarkedPackets;
    const uint64_t events = Simulator::GetEventCount();
    const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();

    std::cout.precision(6);
    std::cout << std::fixed << "{\"goodput_mbit\": " << (all_bytes - at_warmup) * 8 / measured_s / 1e6
              << ", \"simulated_ms\": " << simulated_s * 1e3 << ", \"drops\": " << drops << ", \"marks\": " << marks
              << ", \"data_packets\": " << (all_bytes + kSegmentBytes - 1) / kSegmentBytes << ", \"wall_s\": " << wall_s
              << ", \"events\": " << events << ", \"fct_ms\": [";
    if (any_ends) {
        for (size_t i = 0; i < completions.size(); ++i) {
            const Completion& flow = completions[i];
            std::cout << (i ? ", " : "");
            if (flow.end.IsZero()) {
                std::cout << "null";
            } else {
                std::cout << (flow.end - flow.start).GetSeconds() * 1e3;
            }
        }
    }
    std::cout << "]}\n";
    Simulator::Destroy();
    return 0;
}
