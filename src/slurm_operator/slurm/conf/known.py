"""The keys that Slurm 26.05 reads, by the kind of value they take.

Gathered by asking the programs themselves: every word found in their binaries was offered as a key, and what was not
"unrecognized" is here. The kinds of values come from the complaints about `abc`, 70000 and 99999999999.
"""

SPELLING: dict[str, str] = {}
"""Each key as Slurm's manual writes it, by the key in small letters."""


def _keys(text: str) -> frozenset[str]:
    SPELLING.update((word.lower(), word) for word in text.split())
    return frozenset(word.lower() for word in text.split())


BOOLEAN = _keys(
    """
    AccountingStoreJobComment AllowSpecResourcesUsage DisableRootJobs PriorityFavorSmall TrackWCKey UsePAM
    """
)

UINT16 = _keys(
    """
    AccountingStoragePort AcctGatherNodeFreq BatchStartTimeout CompleteWait EioTimeout EpilogTimeout
    FairShareDampeningFactor FastSchedule GroupUpdateForce GroupUpdateTime HealthCheckInterval HealthCheckTimeout
    InactiveLimit JobFileAppend JobRequeue KillOnBadExit KillWait MaxTasksPerNode MessageTimeout OverTimeLimit
    PrologEpilogTimeout PrologTimeout PropagatePrioProcess ResumeRate ResumeTimeout ResvOverRun ReturnToService
    SchedulerTimeSlice SlurmctldTimeout SlurmdTimeout SlurmSchedLogLevel SuspendRate SuspendTimeout TCPTimeout
    TreeWidth UnkillableStepTimeout VSizeFactor WaitTime
    """
)

UINT32 = _keys(
    """
    EpilogMsgTime FirstJobId JobCompPort KeepAliveTime MaxArraySize MaxBatchRequeue MaxDBDMsgs MaxJobCount MaxJobId
    MaxNodeCount MaxStepCount MinJobAge PriorityWeightAge PriorityWeightAssoc PriorityWeightFairShare
    PriorityWeightJobSize PriorityWeightPartition PriorityWeightQOS SlurmdPort
    """
)

UINT64 = _keys(
    """
    DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode MaxMemPerCPU MaxMemPerNode
    """
)

TEXT = _keys(
    """
    AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
    AccountingStorageParameters AccountingStoragePass AccountingStorageTRES AccountingStorageType
    AccountingStorageUser AccountingStoreFlags AcctGatherEnergyType AcctGatherFilesystemType
    AcctGatherInfinibandType AcctGatherInterconnectType AcctGatherProfileType AuthAltParameters AuthAltTypes
    AuthInfo AuthType BackupAddr BackupController BcastExclude BcastParameters BurstBufferParameters BurstBufferType
    CertgenParameters CertgenType CertmgrParameters CertmgrType CliFilterParameters CliFilterPlugins ClusterName
    CommunicationParameters ControlAddr ControlMachine CoreSpecPlugin CpuFreqDef CpuFreqGovernors CredType
    CryptoType DataParserParameters DebugFlags DependencyParameters EnforcePartLimits Epilog EpilogSlurmctld
    ExtSensorsFreq ExtSensorsType FederationParameters GetEnvTimeout GpuFreqDef GresTypes HashPlugin
    HealthCheckNodeState HealthCheckProgram HttpParserType InteractiveStepOptions JobAcctGatherFrequency
    JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc JobCompParams JobCompPass JobCompPassScript
    JobCompType JobCompUser JobContainerType JobCredentialPrivateKey JobCredentialPublicCertificate JobSubmitPlugins
    LaunchParameters LaunchType LicenseParameters Licenses LogTimeFormat MailDomain MailProg MCSParameters MCSPlugin
    MetricsAuthUsers MetricsParameters MetricsType MpiDefault MpiParams NamespaceType NodeFeaturesPlugins PluginDir
    PlugStackConfig PowerParameters PowerPlugin PreemptExemptTime PreemptMode PreemptParameters PreemptType
    PrEpParameters PrEpPlugins PriorityCalcPeriod PriorityDecayHalfLife PriorityFlags PriorityMaxAge
    PriorityParameters PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod
    PriorityWeightTRES PrivateData ProctrackType Prolog PrologFlags PrologSlurmctld PropagateResourceLimits
    PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit RequeueExitHold ResumeFailProgram
    ResumeProgram ResvEpilog ResvProlog RoutePlugin SallocDefaultCommand SbcastParameters SchedulerParameters
    SchedulerType ScronParameters SelectType SelectTypeParameters SlurmctldAddr SlurmctldDebug
    SlurmctldHttpAuthParameters SlurmctldLogFile SlurmctldParameters SlurmctldPidFile SlurmctldPort
    SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmdDebug SlurmdHttpAuthParameters
    SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdSpoolDir SlurmdSyslogDebug SlurmdUser SlurmSchedLogFile
    SlurmUser SrunEpilog SrunPortRange SrunProlog StateSaveLocation SuspendExcNodes SuspendExcParts SuspendExcStates
    SuspendProgram SuspendTime SwitchParameters SwitchType TaskEpilog TaskPlugin TaskPluginParam TaskProlog
    TLSParameters TLSType TmpFS TopologyParam TopologyPlugin UnkillableStepProgram UrlParserType X11Parameters
    """
)

# Keys that Slurm reads as often as they are given; any other one given twice keeps its last value.
REPEATABLE = _keys(
    """
    DownNodes Epilog EpilogSlurmctld NodeName NodeSet PartitionName PowerAction Prolog PrologSlurmctld SlurmctldHost
    """
)

# Keys that begin a record: the rest of the line is theirs.
NODE_SET = _keys("Feature Nodes")
PARTITION = _keys(
    """
    AllocNodes AllowAccounts AllowGroups AllowQOS Alternate CpuBind Default DefaultTime DefCPUPerGPU DefMemPerCPU
    DefMemPerGPU DefMemPerNode DenyAccounts DenyQOS DisableRootJobs Exclusive ExclusiveTopo ExclusiveUser GraceTime
    Hidden LLN MaxCPUsPerNode MaxCPUsPerSocket MaxMemPerCPU MaxMemPerNode MaxNodes MaxTime MinNodes Nodes
    OverSubscribe OverTimeLimit PowerDownOnIdle PreemptMode Priority PriorityJobFactor PriorityTier QOS ReqResv
    ResumeTimeout RootOnly SelectTypeParameters Shared State SuspendTime SuspendTimeout Topology TRESBillingWeights
    """
)
NODE = _keys(
    """
    BcastAddr Boards CoreSpecCount CoresPerSocket CpuBind CPUs CPUSpecList Feature Features Gres GresConf
    MemSpecLimit NodeAddr NodeHostname Parameters Port Procs RealMemory Reason RestrictedCoresPerGPU Sockets
    SocketsPerBoard State SuspendTime ThreadsPerCore TmpDisk Topology TRESWeights Weight
    """
)
DOWN_NODES = _keys("Reason State")

SLURM_CONF = BOOLEAN | UINT16 | UINT32 | UINT64 | TEXT | REPEATABLE
SLURMDBD_CONF = _keys(
    """
    AllResourcesAbsolute AllowNoDefAcct ArchiveDir ArchiveEvents ArchiveJobEnv ArchiveJobScript ArchiveJobs
    ArchiveResvs ArchiveScript ArchiveSteps ArchiveSuspend ArchiveTXN ArchiveUsage AuthAltParameters AuthAltTypes
    AuthInfo AuthType CommitDelay CommunicationParameters DbdAddr DbdBackupHost DbdHost DbdPort DebugFlags
    DebugLevel DebugLevelSyslog DefaultQOS DisableArchiveCommands DisableCoordDBD DisableRollups HashPlugin JobPurge
    LogFile LogTimeFormat MaxPurgeLimit MaxQueryTimeRange MessageTimeout Parameters PidFile PluginDir PrivateData
    PurgeEventAfter PurgeEventMonths PurgeJobAfter PurgeJobEnvAfter PurgeJobMonths PurgeJobScriptAfter
    PurgeResvAfter PurgeStepAfter PurgeStepMonths PurgeSuspendAfter PurgeSuspendMonths PurgeTXNAfter PurgeTXNMonths
    PurgeUsageAfter PurgeUsageMonths SlurmUser StepPurge StorageBackupHost StorageHost StorageLoc StorageParameters
    StoragePass StoragePassScript StoragePort StorageType StorageUser TCPTimeout TLSParameters TLSType
    TrackSlurmctldDown TrackWCKey
    """
)

CGROUP_CONF = _keys(
    """
    AllowedDevicesFile AllowedRAMSpace AllowedSwapSpace CgroupAutomount CgroupJobIdPaths CgroupMountpoint CgroupPlugin
    CgroupSlice ConstrainCores ConstrainDevices ConstrainRAMSpace ConstrainSwapSpace EnableControllers
    EnableExtraControllers IgnoreSystemd IgnoreSystemdOnFailure MaxRAMPercent MaxSwapPercent MemoryLimitEnforcement
    MemoryLimitThreshold MemorySwappiness MinRAMSpace SignalChildrenProcesses SystemdTimeout
    """
)

LIMITS = {
    **dict.fromkeys(UINT16, 2**16 - 1),
    **dict.fromkeys(UINT32, 2**32 - 1),
    **dict.fromkeys(UINT64, 2**64 - 1),
}
